"""Runs KubeVirt's virt-handler without a cluster, against any virt-launcher."""
