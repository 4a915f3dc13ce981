"""Steps that many scenarios have."""

from kit.kube import phase


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


def works(result, vm, when, timeout=15):
    """virt-handler and the launcher still do what they are asked. `timeout`: in seconds, of each condition."""
    result.step(f"{when}: phase", lambda: phase(vm.latest))
    result.step(f"{when}: pause", vm.put, "pause")
    result.step(f"{when}: Paused", lambda: vm.has_condition("Paused", timeout) > 0)
    result.step(f"{when}: unpause", vm.put, "unpause")
    result.step(f"{when}: not Paused", lambda: vm.lacks_condition("Paused", timeout) > 0)
