package management

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

// A parameterDoc describes a query parameter.
type parameterDoc struct {
	schema schemaNode
	says   string
}

// queryParameters describes the query parameters of routes, except the hubParameters of every route.
var queryParameters = map[string]parameterDoc{
	"timeout":                            {numberSchema, "With `pollingInterval`: the seconds to wait for the end of the instance."},
	"pollingInterval":                    {numberSchema, "With `timeout`: the seconds between two checks."},
	"version":                            {textSchema, "The version of the instance; `defaultVersion` by default."},
	"returnInternalServerErrorOnFailure": {flagSchema, "Whether a failed instance is answered with 500 instead of 200; `false` by default."},
	"showHistory":                        {flagSchema, "Whether to include the history; `false` by default."},
	"showHistoryOutput":                  {flagSchema, "Whether to include results in the history; `false` by default."},
	"showInput":                          {flagSchema, "Whether to include the input; `true` by default."},
	"showOutput":                         {flagSchema, "Whether to include the output; `true` by default. Without it, the app does not read outputs. Not known to .NET."},
	"createdTimeFrom":                    {timeSchema, "Created at this time or later."},
	"createdTimeTo":                      {timeSchema, "Created at this time or earlier."},
	"runtimeStatus":                      {textSchema, "Statuses separated by commas; the parameter may be repeated."},
	"instanceIdPrefix":                   {textSchema, "The prefix of the IDs."},
	"top":                                {schemaNode{"type": "integer", "minimum": 1}, "The largest number on a page; 100 by default."},
	"lastOperationTimeFrom":              {timeSchema, "Last operation at this time or later."},
	"lastOperationTimeTo":                {timeSchema, "Last operation at this time or earlier."},
	"fetchState":                         {flagSchema, "Whether to include the state; `false` by default."},
	"op":                                 {textSchema, "The name of the operation."},
	"reason":                             {textSchema, "The reason, which the history of the instance records."},
	"path":                               {textSchema, "The absolute path of the new file. The file must not exist."},
	"restartWithNewInstanceId":           {flagSchema, "Whether the new instance gets a new ID; `true` by default."},
}

// A schemaNode is a part of an OpenAPI document.
type schemaNode map[string]any

var (
	textSchema   = schemaNode{"type": "string"}
	flagSchema   = schemaNode{"type": "boolean"}
	numberSchema = schemaNode{"type": "number"}
	timeSchema   = schemaNode{"type": "string", "format": "date-time"}
	anySchema    = schemaNode{}
)

// OpenAPIDocument describes routes in OpenAPI 3.0.
func OpenAPIDocument(routes []Route, base string) schemaNode {
	paths := schemaNode{}
	for i := range routes {
		route := &routes[i]
		at, ok := paths["/"+route.Path].(schemaNode)
		if !ok {
			at = schemaNode{}
			paths["/"+route.Path] = at
		}
		at[strings.ToLower(route.Method)] = documentOf(route)
	}
	return schemaNode{
		"openapi": "3.0.3",
		"info": schemaNode{
			"title": "Management of durable orchestrations", "version": "3.0",
			"description": "The HTTP API of the Durable Functions extension for .NET, served by an app in Go.",
		},
		"servers": []schemaNode{{"url": base}},
		"paths":   paths,
		"components": schemaNode{
			"schemas":    answerSchemas(),
			"parameters": hubParameters(),
			"responses":  commonAnswers(),
			"securitySchemes": schemaNode{
				"code":   schemaNode{"type": "apiKey", "in": "query", "name": "code"},
				"header": schemaNode{"type": "apiKey", "in": "header", "name": strings.ToLower(headerKey)},
				"sig": schemaNode{
					"type": "apiKey", "in": "query", "name": "sig",
					"description": "The code of the instance in a URL of an app behind the Functions host. `code` then has the host's key.",
				},
			},
		},
		"security": []schemaNode{{"code": []string{}}, {"header": []string{}}, {"code": []string{}, "sig": []string{}}, {}},
	}
}

// documentOf describes one operation.
func documentOf(r *Route) schemaNode {
	parameters := []schemaNode{}
	for name := range strings.SplitSeq(r.Path, "/") {
		if strings.HasPrefix(name, "{") {
			parameters = append(parameters, schemaNode{"name": strings.Trim(name, "{}"), "in": "path", "required": true, "schema": textSchema})
		}
	}
	for _, name := range r.Query {
		p := queryParameters[name]
		parameters = append(parameters, schemaNode{"name": name, "in": "query", "schema": p.schema, "description": p.says})
	}
	if len(r.Answers) > 0 && isPage(r.Answers[0]) {
		parameters = append(parameters, schemaNode{"name": HeaderContinuation, "in": "header", "schema": textSchema, "description": "The token of the next page, from the previous answer."})
	}
	for name := range hubParameters() {
		parameters = append(parameters, schemaNode{"$ref": "#/components/parameters/" + name})
	}
	sortByName(parameters)
	answers := schemaNode{}
	for status := range commonAnswers() {
		answers[status] = schemaNode{"$ref": "#/components/responses/" + status}
	}
	for _, a := range r.Answers {
		answers[strconv.Itoa(a.Status)] = documentOfAnswer(a)
	}
	out := schemaNode{"summary": r.summary, "operationId": operationID(r), "parameters": parameters, "responses": answers}
	if r.Body != "" {
		out["requestBody"] = schemaNode{"description": r.Body, "content": jsonContent(anySchema)}
	}
	if r.Public {
		out["security"] = []schemaNode{}
	}
	return out
}

// operationID returns the name of an operation, in the style of code generators.
func operationID(r *Route) string {
	id := strings.ToLower(r.Method)
	for name := range strings.SplitSeq(r.Path, "/") {
		if strings.HasPrefix(name, "{") {
			id += "By"
		}
		for word := range strings.FieldsFuncSeq(name, func(c rune) bool { return strings.ContainsRune("{}.", c) }) {
			id += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return id
}

func isPage(a answerDoc) bool {
	return a.schema == "Statuses" || a.schema == "Entities" || a.schema == "Tracking"
}

func documentOfAnswer(a answerDoc) schemaNode {
	out := schemaNode{"description": a.says}
	if a.schema != "" {
		out["content"] = jsonContent(schemaNode{"$ref": "#/components/schemas/" + a.schema})
	}
	headers := schemaNode{}
	if isPage(a) {
		headers[HeaderContinuation] = schemaNode{"schema": textSchema, "description": "Empty on the last page. A page may have fewer than top and not be the last."}
	}
	if a.schema == "Statuses" || a.schema == "Entities" || a.schema == "Purged" {
		headers[HeaderUnreadable] = schemaNode{"schema": textSchema, "description": "The number of records that were skipped because they cannot be read."}
	}
	if a.Status == http.StatusAccepted && a.schema != "" {
		headers[echo.HeaderLocation] = schemaNode{"schema": textSchema}
		headers[echo.HeaderRetryAfter] = schemaNode{"schema": textSchema}
	}
	if len(headers) > 0 {
		out["headers"] = headers
	}
	return out
}

func jsonContent(schema schemaNode) schemaNode {
	return schemaNode{echo.MIMEApplicationJSON: schemaNode{"schema": schema}}
}

// hubParameters are the parameters of every route.
func hubParameters() schemaNode {
	return schemaNode{
		"taskHub":    schemaNode{"name": "taskHub", "in": "query", "schema": textSchema, "description": "The task hub of the app; another name is refused with status 400."},
		"connection": schemaNode{"name": "connection", "in": "query", "schema": textSchema, "description": "The storage connection of the app; another name is refused with status 400."},
	}
}

// commonAnswers are the answers of every route.
func commonAnswers() schemaNode {
	reason := jsonContent(schemaNode{"$ref": "#/components/schemas/Error"})
	return schemaNode{
		"400": schemaNode{"description": "The request is not valid, or names another task hub.", "content": reason},
		"401": schemaNode{"description": "The key is missing or wrong."},
		"403": schemaNode{"description": "The read key does not allow this, or a page of another site sent it.", "content": reason},
		"413": schemaNode{"description": "The body is too large.", "content": reason},
		"500": schemaNode{"description": "An unexpected error.", "content": reason},
		"503": schemaNode{"description": "The app cannot serve now. `Retry-After` is the delay.", "content": reason},
	}
}

// answerSchemas describes the bodies of answers.
func answerSchemas() schemaNode {
	whole := schemaNode{"type": "integer"}
	text, texts := textSchema, schemaNode{"type": "array", "items": textSchema}
	status := object("name", text, "instanceId", text, "runtimeStatus", schemaNode{"type": "string", "enum": []string{
		"Running", "Completed", "ContinuedAsNew", "Failed", "Canceled", "Terminated", "Pending", "Suspended",
	}}, "input", anySchema, "customStatus", anySchema, "output", anySchema, "createdTime", timeSchema, "lastUpdatedTime", timeSchema)
	optional(status, "version", text, "tags", schemaNode{"type": "object", "additionalProperties": textSchema}, "waitsFor", text, "warning", text, "runsHere", schemaNode{"type": "array", "items": optional(object("kind", text, "name", text, "taskId", whole, "since", timeSchema), "attempt", whole)},
		"historyEvents", schemaNode{"type": "array", "items": optional(object("EventType", text, "Timestamp", timeSchema), "", anySchema)})
	failure := object("Message", text)
	optional(failure, "ExceptionMessage", text, "ExceptionType", text, "StackTrace", text, "instancesDeleted", whole)
	setting := object("name", text, "value", anySchema, "source", text)
	entity := object("entityId", object("name", text, "key", text), "lastOperationTime", text, "state", anySchema)
	record := optional(object("ExecutionId", text, "SequenceNumber", whole, "Timestamp", timeSchema, "EventType", text),
		"EventId", whole, "TaskScheduledId", whole, "Shortened", texts, "", anySchema)
	reasons := optional(object("kind", text, "text", text), "name", text, "taskId", whole, "instanceIds", texts, "heldBy", text,
		"since", timeSchema, "due", timeSchema, "runsHere", flagSchema, "runningSince", timeSchema, "where", texts, "stack", text, "attempt", whole, "attempts", whole,
		"alsoUnderWay", flagSchema, "held", flagSchema, "lastError", text,
		"place", optional(object("messagesBefore", whole, "isExact", flagSchema), "partition", whole, "owner", text, "startMissing", flagSchema))
	return schemaNode{
		"Any":      anySchema,
		"Text":     text,
		"Status":   status,
		"Statuses": schemaNode{"type": "array", "items": schemaNode{"$ref": "#/components/schemas/Status"}},
		"Entities": schemaNode{"type": "array", "items": entity},
		"Tracking": schemaNode{"type": "array", "items": record},
		"Why":      object("instanceId", text, "name", text, "runtimeStatus", text, "reasons", schemaNode{"type": "array", "items": reasons}),
		"History": schemaNode{"type": "array", "items": optional(object("EventType", text, "EventId", whole, "IsPlayed", flagSchema, "Timestamp", timeSchema),
			"", anySchema)},
		"Error":         failure,
		"StatusOrError": schemaNode{"anyOf": []schemaNode{{"$ref": "#/components/schemas/Status"}, {"$ref": "#/components/schemas/Error"}}},
		"Purged":        object("instancesDeleted", schemaNode{"type": "integer"}),
		"Health": optional(object("status", schemaNode{"type": "string", "enum": []string{"live", "ready", "unavailable"}}), "reasons", texts, "waiting", texts,
			"stacks", schemaNode{"type": "array", "items": object("function", text, "stack", text)},
			"undecodable", object("count", whole, "messages", schemaNode{"type": "array", "items": object(
				"queue", text, "messageId", text, "reason", text, "since", timeSchema, "setAside", flagSchema,
			)}),
			"blockedPartitions", object("count", whole, "partitions", schemaNode{"type": "array", "items": object(
				"partition", whole, "problem", text, "reason", text, "since", timeSchema,
			)})),
		"Retried": object("messagesPutBack", whole),
		"Backup":  object("backup", text, "bytes", whole),
		"CheckStatus": optional(object("id", text, "statusQueryGetUri", text, "sendEventPostUri", text, "terminatePostUri", text, "rewindPostUri", text,
			"purgeHistoryDeleteUri", text, "restartPostUri", text, "suspendPostUri", text, "resumePostUri", text), "warning", text),
		"Scale": optional(object("partitionCount", whole, "controlQueueLengths", schemaNode{"type": "array", "items": whole},
			"controlQueueLatenciesInSeconds", schemaNode{"type": "array", "items": numberSchema}, "workItemQueueLength", whole,
			"workItemQueueLatencyInSeconds", numberSchema, "workerCount", whole, "targetWorkerCount", whole,
			"scaleRecommendation", object("action", schemaNode{"type": "string", "enum": []string{"None", "AddWorker", "RemoveWorker"}},
				"keepWorkersAlive", flagSchema, "reason", text)),
			"storedMessageCount", whole, "controlQueueOwners", texts, "workers", schemaNode{"type": "array", "items": optional(object(
				"id", text, "isThisProcess", flagSchema, "partitions", schemaNode{"type": "array", "items": whole}), "build", text)}),
		"Configuration": object("mode", text, "plan", text, "address", text, "appRoot", text, "logLevel", text, "key", text, "readKey", text,
			"settings", schemaNode{"type": "array", "items": setting}, "notices", texts, "problems", texts),
	}
}

// object describes an object that has exactly the given members.
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

// optional adds optional members to an object. An empty name allows any other member.
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

// sortByName sorts parameters, so that the document is deterministic.
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
