package eventjson

import (
	"encoding/json"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Instance is the JSON of an OrchestrationInstance.
type Instance struct {
	InstanceID  *string `json:"InstanceId"`
	ExecutionID *string `json:"ExecutionId"`
}

// Decode returns i as a history.OrchestrationInstance.
func (i *Instance) Decode() history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: orEmpty(i.InstanceID), ExecutionID: orEmpty(i.ExecutionID)}
}

// Parent is the JSON of a ParentInstance.
type Parent struct {
	Name                  string
	Version               string
	OrchestrationInstance *Instance
	TaskScheduleID        int `json:"TaskScheduleId"`
}

func (p *Parent) parent() *history.ParentInstance {
	if p == nil {
		return nil
	}
	parent := &history.ParentInstance{Name: p.Name, Version: p.Version, TaskScheduleID: p.TaskScheduleID}
	if p.OrchestrationInstance != nil {
		parent.Instance = p.OrchestrationInstance.Decode()
	}
	return parent
}

// TraceContext is the JSON of a DistributedTraceContext.
type TraceContext struct {
	TraceParent       string
	TraceState        *string
	ID                *string `json:"Id"`
	SpanID            *string `json:"SpanId"`
	ActivityStartTime *string
}

func (c *TraceContext) context() *history.TraceContext {
	if c == nil {
		return nil
	}
	return &history.TraceContext{
		TraceParent: c.TraceParent, TraceState: c.TraceState, ID: c.ID, SpanID: c.SpanID, ActivityStartTime: c.ActivityStartTime,
	}
}

// Failure is the JSON of a FailureDetails.
type Failure struct {
	ErrorType      string
	ErrorMessage   string
	StackTrace     *string
	InnerFailure   *Failure
	IsNonRetriable bool
	Properties     map[string]json.RawMessage
}

// Decode returns f as history.FailureDetails; nil if f is nil.
func (f *Failure) Decode() *history.FailureDetails {
	if f == nil {
		return nil
	}
	details := &history.FailureDetails{
		ErrorType:      f.ErrorType,
		ErrorMessage:   f.ErrorMessage,
		StackTrace:     f.StackTrace,
		InnerFailure:   f.InnerFailure.Decode(),
		IsNonRetriable: f.IsNonRetriable,
	}
	if f.Properties != nil {
		details.Properties = make(map[string]string, len(f.Properties))
		for k, v := range f.Properties {
			if k != TypeMember {
				details.Properties[k] = string(v)
			}
		}
	}
	return details
}

// Tags is the JSON of a dictionary of strings: an object, or in the data-contract form an array
// of keys and values.
type Tags map[string]string

// UnmarshalJSON decodes both forms and removes the dictionary's own type.
func (t *Tags) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var pairs []struct{ Key, Value string }
		if err := json.Unmarshal(data, &pairs); err != nil {
			return err
		}
		*t = make(Tags, len(pairs))
		for _, p := range pairs {
			(*t)[p.Key] = p.Value
		}
		return nil
	}
	var tags map[string]string
	if err := json.Unmarshal(data, &tags); err != nil {
		return err
	}
	delete(tags, TypeMember)
	*t = tags
	return nil
}
