package azurestorage

import (
	"strings"
	"testing"
	"time"
)

func TestConfig_ZeroValueIsValid(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	c := Config{}.WithDefaults()
	if c.TaskHub != "TestHubName" || c.PartitionCount != 4 || c.ControlQueueBatchSize != 32 || c.ControlQueueBufferThreshold != 256 ||
		c.ControlQueueVisibilityTimeout != 5*time.Minute || c.MaxQueuePollingInterval != 30*time.Second || c.QueueEncoding != UTF8 {
		t.Errorf("defaults are %+v", c)
	}
	if other := (Config{}).WithDefaults(); other.WorkerID == c.WorkerID {
		t.Errorf("two configurations have the worker ID %s", c.WorkerID)
	}
}

func TestConfig_ErrorsNameFieldValueAndRange(t *testing.T) {
	for want, c := range map[string]Config{
		`TaskHub: task hub name "a b"`:                               {TaskHub: "a b"},
		"PartitionCount is 17; want 1 to 16":                         {PartitionCount: 17},
		"PartitionCount is -1; want 1 to 16":                         {PartitionCount: -1},
		"ControlQueueBatchSize is 33; want 1 to 32":                  {ControlQueueBatchSize: 33},
		"ControlQueueBufferThreshold is 1001; want 1 to 1000":        {ControlQueueBufferThreshold: 1001},
		"ControlQueueVisibilityTimeout is 59s; want 1m0s to 1h0m0s":  {ControlQueueVisibilityTimeout: 59 * time.Second},
		"WorkItemQueueVisibilityTimeout is 2h0m0s; want 1m0s to 1h0": {WorkItemQueueVisibilityTimeout: 2 * time.Hour},
		"MaxQueuePollingInterval is 1ms; want 50ms to 1h0m0s":        {MaxQueuePollingInterval: time.Millisecond},
		"MaxConcurrentActivities is -3; want 1 to":                   {MaxConcurrentActivities: -3},
		"LeaseAcquireInterval is 1m0s; want less than LeaseInterval": {LeaseAcquireInterval: time.Minute},
		`TrackingStoreNamePrefix: tracking store prefix "a b"`:       {TrackingStoreNamePrefix: "a b"},
		"QueueEncoding is": {QueueEncoding: 7},
	} {
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestQueueEncoding_HasDotNetNames(t *testing.T) {
	for e, want := range map[QueueEncoding]string{UTF8: "UTF8", Base64: "Base64", 7: "QueueEncoding(7)"} {
		if got := e.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
