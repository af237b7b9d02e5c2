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
}
