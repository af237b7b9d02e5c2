package eventgrid

// A wireEvent is an event as Event Grid takes it, with the members of .NET in
// their order. The topic and the version of the metadata are for Event Grid to
// fill in (EventGridLifeCycleNotificationHelper.cs, CreateEventGridEvent).
type wireEvent struct {
	ID              string   `json:"id"`
	Topic           *string  `json:"topic"`
	Subject         string   `json:"subject"`
	Data            wireData `json:"data"`
	EventType       string   `json:"eventType"`
	EventTime       string   `json:"eventTime"`
	MetadataVersion *string  `json:"metadataVersion"`
	DataVersion     string   `json:"dataVersion"`
}

type wireData struct {
	HubName       string `json:"hubName"`
	FunctionName  string `json:"functionName"`
	InstanceID    string `json:"instanceId"`
	Reason        string `json:"reason"`
	RuntimeStatus string `json:"runtimeStatus"`
}

func (q queued) wire() wireEvent {
	e := q.event
	return wireEvent{
		ID: q.id, Subject: "durable/orchestrator/" + e.Status, EventType: "orchestratorEvent", DataVersion: "1.0",
		EventTime: q.at.UTC().Format("2006-01-02T15:04:05.9999999Z"),
		Data:      wireData{HubName: e.Hub, FunctionName: e.Function, InstanceID: e.InstanceID, Reason: e.Reason, RuntimeStatus: e.Status},
	}
}
