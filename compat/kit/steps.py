"""Steps that many scenarios have."""


def boot(result, vm, agent_timeout=60):
    """To a guest with its agent connected. A VM that never runs ends the scenario."""
    result.step("phase Running", vm.running, required=True)
    result.step("AgentConnected", vm.agent_connected, agent_timeout)


def end_by_deletion(result, vm):
    vm.delete()
    result.step("gone", vm.gone)


def end_after_final_phase(result, vm):
    """The VMI is final: its pod ends, and then it is deleted."""
    result.step("pod ended", vm.pod_ended)
    end_by_deletion(result, vm)
