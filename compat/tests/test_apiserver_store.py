"""The API server's objects behave as Kubernetes' do."""

import copy
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kit.apiserver_store import (
    ApiFailure,
    Store,
    field_selector,
    json_patch,
    label_selector,
    merge_patch,
    selected,
)  # noqa: E402

KEY = ("kubevirt.io", "virtualmachineinstances")


class Selectors(unittest.TestCase):
    def matches(self, selector, **labels):
        return selected(label_selector(selector), [], {"metadata": {"labels": labels}})

    def test_labels(self):
        for selector, labels, expected in (
            ("a=1", {"a": "1"}, True),
            ("a==1", {"a": "2"}, False),
            ("a!=1", {}, True),
            ("a", {"a": ""}, True),
            ("!a", {"a": ""}, False),
            ("a in (1,2),b", {"a": "2", "b": "x"}, True),
            ("a in (1,2)", {"a": "3"}, False),
            ("a notin (1, 2)", {"a": "3"}, True),
            ("a notin (1,2)", {}, True),
            ("", {}, True),
        ):
            with self.subTest(selector=selector, labels=labels):
                self.assertEqual(self.matches(selector, **labels), expected)

    def test_fields(self):
        obj = {"metadata": {"name": "x"}, "spec": {}}
        self.assertTrue(selected([], field_selector("metadata.name=x,spec.nodeName!=n"), obj))
        self.assertFalse(selected([], field_selector("metadata.name=y"), obj))


class Patches(unittest.TestCase):
    def test_merge(self):
        self.assertEqual(
            merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}}), {"b": {"c": 2, "d": 3}}
        )

    def test_json_patch(self):
        operations = [
            {"op": "test", "path": "/a~1b", "value": 1},
            {"op": "add", "path": "/list/-", "value": 3},
            {"op": "add", "path": "/list/0", "value": 0},
            {"op": "remove", "path": "/gone"},
        ]
        self.assertEqual(
            json_patch({"a/b": 1, "list": [1], "gone": 1}, operations), {"a/b": 1, "list": [0, 1, 3]}
        )

    def test_json_patch_whose_test_fails(self):
        with self.assertRaises(ApiFailure) as caught:
            json_patch({"a": 1}, [{"op": "test", "path": "/a", "value": 2}])
        self.assertEqual(caught.exception.code, 422)


class Objects(unittest.TestCase):
    def setUp(self):
        self.store = Store()
        self.enterContext(self.store.changed)

    def create(self, **metadata):
        return self.store.create(KEY, "kubevirt.io/v1", "default", {"metadata": {"name": "vm", **metadata}})

    def test_defaults(self):
        obj = self.create()
        self.assertEqual(
            (obj["kind"], obj["apiVersion"], obj["metadata"]["generation"]),
            ("VirtualMachineInstance", "kubevirt.io/v1", 1),
        )
        with self.assertRaises(ApiFailure) as caught:
            self.create()
        self.assertEqual(caught.exception.reason, "AlreadyExists")

    def test_a_stale_update_is_a_conflict(self):
        stale = dict(self.create())
        stale = {**stale, "metadata": dict(stale["metadata"])}
        self.store.patch(KEY, "default", "vm", "application/merge-patch+json", {"spec": {"a": 1}})
        with self.assertRaises(ApiFailure) as caught:
            self.store.update(KEY, "default", "vm", stale)
        self.assertEqual(caught.exception.code, 409)

    def test_an_update_without_a_change_is_no_event(self):
        self.create()
        before = len(self.store.history)
        self.store.patch(KEY, "default", "vm", "application/merge-patch+json", {})
        self.assertEqual(len(self.store.history), before)

    def test_a_finalizer_keeps_a_deleted_object(self):
        self.create(finalizers=["f"])
        self.assertIn("deletionTimestamp", self.store.delete(KEY, "default", "vm", None)["metadata"])
        self.store.patch(
            KEY, "default", "vm", "application/merge-patch+json", {"metadata": {"finalizers": None}}
        )
        self.assertEqual(
            [event for _, _, event, _, _ in self.store.history], ["ADDED", "MODIFIED", "DELETED"]
        )
        with self.assertRaises(ApiFailure) as caught:
            self.store.get(KEY, "default", "vm")
        self.assertEqual(caught.exception.code, 404)


class Interference(unittest.TestCase):
    def test_the_update_into_that_phase_conflicts_once(self):
        store = Store()
        self.enterContext(store.changed)
        obj = {"metadata": {"name": "vm"}, "status": {"phase": "Running"}}
        store.create(KEY, "kubevirt.io/v1", "default", obj)
        store.interfere(KEY, "default", "vm", "Succeeded")

        def update(phase):
            new = copy.deepcopy(store.get(KEY, "default", "vm"))
            new["status"]["phase"] = phase
            return store.update(KEY, "default", "vm", new)["status"]["phase"]

        self.assertEqual(update("Running"), "Running")
        with self.assertRaises(ApiFailure) as caught:
            update("Succeeded")
        self.assertEqual(caught.exception.code, 409)
        self.assertEqual(store.history[-1][2], "MODIFIED", "whoever watches sees the change")
        self.assertEqual(update("Succeeded"), "Succeeded")


if __name__ == "__main__":
    unittest.main()
