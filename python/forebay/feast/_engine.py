"""A compute engine that publishes each materialisation of a feature view as one version."""

from __future__ import annotations

import logging
from typing import Any

from feast.feature_view import FeatureView
from feast.infra.common.materialization_job import MaterializationJobStatus, MaterializationTask
from feast.infra.compute_engines.dag.context import ExecutionContext
from feast.infra.compute_engines.local.arrow_table_value import ArrowTableValue
from feast.infra.compute_engines.local.compute import LocalComputeEngine
from feast.infra.compute_engines.local.feature_builder import LocalFeatureBuilder
from feast.infra.compute_engines.local.job import LocalMaterializationJob
from feast.infra.compute_engines.local.nodes import LocalOutputNode
from feast.infra.registry.base_registry import BaseRegistry

from ._config import ForebayEngineConfig
from ._names import view_table
from ._places import own_config, place_of
from ._versions import Range, View, columns_of, publish, way

_logger = logging.getLogger(__name__)


class ForebayEngine(LocalComputeEngine):
    """Feast's local engine, whose materialisations are pushed whole.

    What the gate holds fails the materialisation with the gate's words; what served goes on
    serving, and Feast does not count the range as materialised.
    """

    def __init__(self, **options: Any) -> None:
        stores = {name: options.pop(name) for name in ("repo_config", "offline_store")}
        stores["online_store"] = options.pop("online_store")
        self._config = ForebayEngineConfig(**options)
        super().__init__(backend=self._config.backend, **stores)  # pyright: ignore

    def _materialize_one(
        self, registry: BaseRegistry, task: MaterializationTask, **kwargs: Any
    ) -> LocalMaterializationJob:
        context = self.get_execution_context(registry, task)
        backend = self._get_backend(context)
        job = f"{task.feature_view.name}-{task.start_time}-{task.end_time}"
        try:
            builder = _Builder(registry, task, backend, self._config)
            builder.build().execute(context)
        except Exception as error:
            return LocalMaterializationJob(job, MaterializationJobStatus.ERROR, error)
        return LocalMaterializationJob(job, MaterializationJobStatus.SUCCEEDED)


class _Builder(LocalFeatureBuilder):
    """The local engine's plan, without detours by data frames that would change nothing."""

    def __init__(
        self,
        registry: BaseRegistry,
        task: MaterializationTask,
        backend: Any,
        config: ForebayEngineConfig,
    ) -> None:
        super().__init__(registry, task, backend)
        self._span, self._config = Range(task.start_time, task.end_time), config

    def build_filter_node(self, view: Any, input_node: Any) -> Any:
        if getattr(view, "filter", None):
            return super().build_filter_node(view, input_node)  # pyright: ignore
        return input_node

    def build_dedup_node(self, view: Any, input_node: Any) -> Any:
        # The push takes the newest row of a key; others that read this view's rows do not.
        if view is self.dag_root.view and not view.offline:
            return input_node
        return super().build_dedup_node(view, input_node)  # pyright: ignore

    def build_output_nodes(self, view: Any, input_node: Any) -> Any:
        node = _PublishNode(self.dag_root.view, self._span, self._config, [input_node])
        self.nodes.append(node)
        return node


class _PublishNode(LocalOutputNode):
    def __init__(
        self, view: Any, span: Range, config: ForebayEngineConfig, inputs: list[Any]
    ) -> None:
        super().__init__("output", view, inputs)  # pyright: ignore
        self._span, self._config = span, config

    def execute(self, context: ExecutionContext) -> ArrowTableValue:
        rows: Any = self.get_single_table(context).data
        view = self.feature_view
        if view.online:
            self._publish(context, rows)
        if view.offline and rows.num_rows:
            offline: Any = context.offline_store
            offline.offline_write_batch(context.repo_config, view, rows, None)
        return ArrowTableValue(rows)

    def _publish(self, context: ExecutionContext, rows: Any) -> None:
        view, config = self.feature_view, context.repo_config
        place, name = place_of(config), view_table(config, view)
        columns = columns_of(rows, _described(view), own_config(config).key_ttl_seconds)
        how = way(self._config.mode, self._span, view.materialization_intervals)
        options = {**self._config.push, **self._config.views.get(view.name, {})}
        result = publish(place.own(create=True), name, columns, how, options)
        place.changed(name)
        if result is not None:
            _logger.info("feature view %s: %s", view.name, result)


def _described(view: FeatureView) -> View:
    source = view.batch_source
    mapping: dict[str, str] = getattr(source, "field_mapping", None) or {}
    event: str = source.timestamp_field  # pyright: ignore
    created: str | None = source.created_timestamp_column or None  # pyright: ignore
    return View(
        name=view.name,
        features={field.name: field.dtype.to_value_type() for field in view.features},
        join_keys={field.name: field.dtype.to_value_type() for field in view.entity_columns},
        event_column=mapping.get(event, event),
        created_column=created and mapping.get(created, created),
    )
