"""Runs scenarios one after the other, whatever becomes of each, and writes their records."""

import json

from kit.result import StepFailed


class Runner:
    """Base of the sessions, which have `folder` and `vms`, and these methods: new_result, finish (of a record),
    revive_handlers (that have ended) and stop."""

    def run_all(self, scenarios):
        failed = {}
        for scenario in scenarios:
            print(f"{scenario.name}: {scenario.does}", flush=True)
            result = self.new_result(scenario.name)
            reason = scenario.lacks(self)
            if reason:
                result.skip(reason)
            else:
                self.run(scenario, result)
            result.write(self.folder)
            if result.data["failed"]:
                failed[scenario.name] = result.data["failed"]
        self.stop()
        print("failed steps:", json.dumps(failed, indent=1) if failed else "none", flush=True)

    def run(self, scenario, result):
        vm, before = None, len(self.vms)
        try:
            vm = scenario.run(self, result)
        except StepFailed:
            pass
        except Exception:  # noqa: BLE001 - the record says it, and the next scenario runs
            result.crashed()
        if vm is None and len(self.vms) > before:
            vm = self.vms[-1]
        self.finish(result, vm)
        for other in self.vms[before:]:
            other.discard()
        self.revive_handlers(result)
