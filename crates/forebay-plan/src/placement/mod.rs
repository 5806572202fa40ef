//! Replicas and their placement from the load on partitions.
