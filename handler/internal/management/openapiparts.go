package management

import (
	"slices"
	"strings"
)

// hubParameters are what every route takes.
func hubParameters() schemaNode {
	return schemaNode{
		"taskHub":    schemaNode{"name": "taskHub", "in": "query", "schema": textSchema, "description": "The app's task hub; another is refused with status 400."},
		"connection": schemaNode{"name": "connection", "in": "query", "schema": textSchema, "description": "The app's storage connection; another is refused with status 400."},
	}
}

// commonAnswers are what every route may answer with.
func commonAnswers() schemaNode {
	reason := jsonContent(schemaNode{"$ref": "#/components/schemas/Error"})
	return schemaNode{
		"400": schemaNode{"description": "The request is wrong, or for another task hub.", "content": reason},
		"401": schemaNode{"description": "The key is missing or wrong."},
		"403": schemaNode{"description": "A page of another site may not do this.", "content": reason},
		"413": schemaNode{"description": "The body is too long.", "content": reason},
		"500": schemaNode{"description": "Something unexpected happened.", "content": reason},
		"503": schemaNode{"description": "The app cannot serve now. `Retry-After` says when to try again.", "content": reason},
	}
}

// answerSchemas describe the bodies of answers.
func answerSchemas() schemaNode {
	whole := schemaNode{"type": "integer"}
	text, texts := textSchema, schemaNode{"type": "array", "items": textSchema}
	status := object("name", text, "instanceId", text, "runtimeStatus", schemaNode{"type": "string", "enum": []string{
		"Running", "Completed", "ContinuedAsNew", "Failed", "Canceled", "Terminated", "Pending", "Suspended",
	}}, "input", anySchema, "customStatus", anySchema, "output", anySchema, "createdTime", timeSchema, "lastUpdatedTime", timeSchema)
	optional(status, "version", text, "waitsFor", text, "warning", text, "historyEvents", schemaNode{"type": "array", "items": optional(object("EventType", text, "Timestamp", timeSchema), "", anySchema)})
	failure := object("Message", text)
	optional(failure, "ExceptionMessage", text, "ExceptionType", text, "StackTrace", text)
	setting := object("name", text, "value", anySchema, "source", text)
	entity := object("entityId", object("name", text, "key", text), "lastOperationTime", text, "state", anySchema)
	record := optional(object("ExecutionId", text, "SequenceNumber", whole, "Timestamp", timeSchema, "EventType", text),
		"EventId", whole, "TaskScheduledId", whole, "Shortened", texts, "", anySchema)
	return schemaNode{
		"Any":           anySchema,
		"Text":          text,
		"Status":        status,
		"Statuses":      schemaNode{"type": "array", "items": schemaNode{"$ref": "#/components/schemas/Status"}},
		"Entities":      schemaNode{"type": "array", "items": entity},
		"Tracking":      schemaNode{"type": "array", "items": record},
		"Error":         failure,
		"StatusOrError": schemaNode{"anyOf": []schemaNode{{"$ref": "#/components/schemas/Status"}, {"$ref": "#/components/schemas/Error"}}},
		"Purged":        object("instancesDeleted", schemaNode{"type": "integer"}),
		"Health": optional(object("status", schemaNode{"type": "string", "enum": []string{"live", "ready", "unavailable"}}), "reasons", texts, "waiting", texts,
			"undecodable", object("count", whole, "messages", schemaNode{"type": "array", "items": object(
				"queue", text, "messageId", text, "reason", text, "since", timeSchema, "setAside", flagSchema)})),
		"Retried": object("messagesPutBack", whole),
		"CheckStatus": optional(object("id", text, "statusQueryGetUri", text, "sendEventPostUri", text, "terminatePostUri", text, "rewindPostUri", text,
			"purgeHistoryDeleteUri", text, "restartPostUri", text, "suspendPostUri", text, "resumePostUri", text), "warning", text),
		"Scale": object("partitionCount", whole, "controlQueueLengths", schemaNode{"type": "array", "items": whole},
			"controlQueueLatenciesInSeconds", schemaNode{"type": "array", "items": numberSchema}, "workItemQueueLength", whole,
			"workItemQueueLatencyInSeconds", numberSchema, "workerCount", whole, "targetWorkerCount", whole,
			"scaleRecommendation", object("action", schemaNode{"type": "string", "enum": []string{"None", "AddWorker", "RemoveWorker"}},
				"keepWorkersAlive", flagSchema, "reason", text)),
		"Configuration": object("mode", text, "plan", text, "address", text, "appRoot", text, "logLevel", text, "key", text,
			"settings", schemaNode{"type": "array", "items": setting}, "notices", texts, "problems", texts),
	}
}

// object describes an object that has all the members named and no others.
func object(members ...any) schemaNode {
	node := schemaNode{"type": "object", "properties": schemaNode{}, "additionalProperties": false}
	optional(node, members...)
	var required []string
	for i := 0; i < len(members); i += 2 {
		required = append(required, members[i].(string))
	}
	node["required"] = required
	return node
}

// optional adds members to an object that it may have. An empty name stands for
// any other.
func optional(node schemaNode, members ...any) schemaNode {
	for i := 0; i < len(members); i += 2 {
		if members[i] == "" {
			node["additionalProperties"] = true
			continue
		}
		node["properties"].(schemaNode)[members[i].(string)] = members[i+1]
	}
	return node
}

// sortByName puts parameters in an order that does not change.
func sortByName(parameters []schemaNode) {
	name := func(n schemaNode) string {
		if name, ok := n["name"].(string); ok {
			return name
		}
		ref, _ := n["$ref"].(string)
		return "~" + ref
	}
	slices.SortStableFunc(parameters, func(a, b schemaNode) int { return strings.Compare(name(a), name(b)) })
}
