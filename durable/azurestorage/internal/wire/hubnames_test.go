package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHubNames_MatchDurableTask(t *testing.T) {
	n := NewHubNames("MyHub")
	got := []string{
		n.HistoryTable(), n.InstancesTable(), n.PartitionsTable(),
		n.ControlQueue(0), n.ControlQueue(15), n.WorkItemQueue(),
		n.LargeMessageContainer(), n.LeaseContainer(), n.TaskHubInfoBlob(), n.AppLeaseContainer(), n.AppLeaseInfoBlob(),
		n.JumpStartTable(), n.InstanceHistoryTable(), n.TrackingQueue(),
	}
	want := []string{
		"MyHubHistory", "MyHubInstances", "MyHubPartitions",
		"myhub-control-00", "myhub-control-15", "myhub-workitems",
		"myhub-largemessages", "myhub-leases", "taskhub.json", "myhub-applease", "myhub-appleaseinfo",
		"JumpStart00MyHub", "InstanceHistory00MyHub", "myhub-tracking",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("names (-got +want):\n%s", diff)
	}
}

func TestHubNames_OfPartitionLogs(t *testing.T) {
	n := NewHubNames("MyHub")
	if diff := cmp.Diff([]string{n.PartitionLogContainer(), n.PartitionLogInfoBlob()}, []string{"myhub-log", "hub.json"}); diff != "" {
		t.Errorf("names (-got +want):\n%s", diff)
	}
}

// With a tracking store, the names of History and Instances start with its prefix, and all other names
// with the hub's name (DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs,
// HistoryTableName, InstanceTableName and PartitionTableName).
func TestHubNames_OfATrackingStoreMatchDurableTask(t *testing.T) {
	n := NewHubNames("MyHub").WithTrackingStore("DurableTask")
	got := []string{n.HistoryTable(), n.InstancesTable(), n.PartitionsTable(), n.ControlQueue(0), n.LargeMessageContainer(), n.LeaseContainer()}
	want := []string{"DurableTaskHistory", "DurableTaskInstances", "MyHubPartitions", "myhub-control-00", "myhub-largemessages", "myhub-leases"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("names (-got +want):\n%s", diff)
	}
}
