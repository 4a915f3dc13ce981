"""A real cluster on one machine: Kubernetes' programs, KubeVirt's operator, and the scenarios that run in it."""
