"""The move/insert problem as an integer program, solved by HiGHS: what the planner is measured against.

x[j][i] says that partition j goes to machine i; S is the most that a machine inserts, O the most that
one moves. Minimise S + O.
"""

import highspy
import numpy as np


def solve(instance: dict, seconds: float, integer: bool = True) -> dict:
    """The best cost found and a proved bound; without `integer` the linear relaxation, for both."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", float(seconds))
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", 1e-6)
    solver.passModel(model(instance, integer))
    solver.run()
    info = solver.getInfo()
    cost = info.objective_function_value
    return {"cost": cost, "bound": info.mip_dual_bound if integer else cost}


def model(instance: dict, integer: bool) -> highspy.HighsLp:
    machines, partitions = instance["machines"], instance["partitions"]
    choices = len(partitions) * machines
    insert, moving = choices, choices + 1
    rows = Rows()
    for j in range(len(partitions)):
        rows.add({j * machines + i: 1.0 for i in range(machines)}, 1.0, 1.0)
    for i in range(machines):
        loads = {j * machines + i: float(p["n"]) for j, p in enumerate(partitions)}
        rows.add({**loads, insert: -1.0}, -highspy.kHighsInf, 0.0)
        # Staying spares the machine what leaving would cost it; coming costs it the same.
        home = sum(p["e"] for p in partitions if p["h"] == i)
        moves = {
            j * machines + i: float(-p["e"] if p["h"] == i else p["e"]) for j, p in enumerate(partitions)
        }
        rows.add({**moves, moving: -1.0}, -highspy.kHighsInf, -float(home))
    lp = highspy.HighsLp()
    lp.num_col_ = choices + 2
    lp.col_cost_ = np.array([0.0] * choices + [1.0, 1.0])
    lp.col_lower_ = np.zeros(choices + 2)
    lp.col_upper_ = np.array([1.0] * choices + [highspy.kHighsInf] * 2)
    if integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * choices + [highspy.HighsVarType.kContinuous] * 2
    rows.into(lp)
    return lp


class Rows:
    def __init__(self):
        self.starts, self.columns, self.values, self.lower, self.upper = [0], [], [], [], []

    def add(self, terms: dict, lower: float, upper: float) -> None:
        for column, value in terms.items():
            if value:
                self.columns.append(column)
                self.values.append(value)
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)

    def into(self, lp: highspy.HighsLp) -> None:
        lp.num_row_ = len(self.lower)
        lp.row_lower_, lp.row_upper_ = np.array(self.lower), np.array(self.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.starts)
        lp.a_matrix_.index_ = np.array(self.columns)
        lp.a_matrix_.value_ = np.array(self.values)
