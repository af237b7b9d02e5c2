package statusjson

// A Why is the JSON of why an instance does not go on. The extension has no such answer.
type Why struct {
	InstanceID    string   `json:"instanceId"`
	Name          string   `json:"name"`
	RuntimeStatus string   `json:"runtimeStatus"`
	Reasons       []Reason `json:"reasons"`
}

// A Reason is one of them. Times are in RFC 3339.
type Reason struct {
	Kind        string   `json:"kind"` // one of durable's ReasonKinds
	Text        string   `json:"text"` // in words
	Name        string   `json:"name,omitempty"`
	Attempt     int      `json:"attempt,omitempty"`  // of what has failed before
	Attempts    int      `json:"attempts,omitempty"` // how many there may be
	TaskID      *int     `json:"taskId,omitempty"`
	InstanceIDs []string `json:"instanceIds,omitempty"`
	HeldBy      string   `json:"heldBy,omitempty"`
	Since       string   `json:"since,omitempty"`
	Due         string   `json:"due,omitempty"`
	Where       []string `json:"where,omitempty"`
	Stack       string   `json:"stack,omitempty"` // of code that does not yield

	IsAlsoUnderWay bool   `json:"alsoUnderWay,omitempty"` // no code waits for it
	IsHeld         bool   `json:"held,omitempty"`         // its outcome is stored, and the instance suspended
	LastError      string `json:"lastError,omitempty"`    // of the previous attempt

	RunsHere     *bool  `json:"runsHere,omitempty"` // of an activity, if the app's worker knows
	RunningSince string `json:"runningSince,omitempty"`

	Place *Place `json:"place,omitempty"` // of what has not begun, if the hub can tell
}

// A Place is where an instance stands that has not begun.
type Place struct {
	Partition *int   `json:"partition,omitempty"` // none in a hub without partitions
	Owner     string `json:"owner,omitempty"`     // the worker that has the partition, if one does
	Before    int    `json:"messagesBefore"`
	IsExact   bool   `json:"isExact"` // whether it is that number, and not about

	StartMissing bool `json:"startMissing,omitempty"` // the instance seems to have no start message
}
