package statusjson

// A Why is the JSON of the reasons why an instance is waiting. The .NET extension has no such answer.
type Why struct {
	InstanceID    string   `json:"instanceId"`
	Name          string   `json:"name"`
	RuntimeStatus string   `json:"runtimeStatus"`
	Reasons       []Reason `json:"reasons"`
}

// A Reason is one reason. Times are in RFC 3339.
type Reason struct {
	Kind        string   `json:"kind"` // a durable.ReasonKind
	Text        string   `json:"text"` // description
	Name        string   `json:"name,omitempty"`
	Attempt     int      `json:"attempt,omitempty"`  // number of the current attempt, or of the attempt that starts when the timer fires
	Attempts    int      `json:"attempts,omitempty"` // the largest number of attempts
	TaskID      *int     `json:"taskId,omitempty"`
	InstanceIDs []string `json:"instanceIds,omitempty"`
	HeldBy      string   `json:"heldBy,omitempty"`
	Since       string   `json:"since,omitempty"`
	Due         string   `json:"due,omitempty"`
	Where       []string `json:"where,omitempty"`
	Stack       string   `json:"stack,omitempty"` // of code that does not yield

	IsNotAwaited    bool   `json:"alsoUnderWay,omitempty"` // in flight, but no code waits for it
	IsOutcomeStored bool   `json:"held,omitempty"`         // the result is stored, but the instance is suspended
	LastError       string `json:"lastError,omitempty"`    // of the previous attempt

	RunsHere     *bool  `json:"runsHere,omitempty"` // of an activity, if the app's worker knows
	RunningSince string `json:"runningSince,omitempty"`

	QueuePosition *QueuePosition `json:"place,omitempty"` // of an instance that has not started, if the hub reports it
}

// A QueuePosition is the position of an instance that has not started.
type QueuePosition struct {
	Partition     *int   `json:"partition,omitempty"` // nil in a hub without partitions
	Owner         string `json:"owner,omitempty"`     // the worker that owns the partition, or ""
	MessagesAhead int    `json:"messagesBefore"`
	IsExact       bool   `json:"isExact"` // MessagesAhead is exact, not an estimate

	StartMissing bool `json:"startMissing,omitempty"` // the start message seems to be missing
}
