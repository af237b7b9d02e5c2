package management

import (
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A Route is an operation of the management API. It matches requests and documents the operation.
type Route struct {
	Method  string
	Path    string // relative to the base; names in braces match any segment
	summary string
	Query   []string // names in queryParameters
	Body    string   // description of the body; "" for no body
	Answers []answerDoc

	// operation returns the operation for the values in a request's path.
	operation func(m *API, path pathValues) operation

	// chosen names the path value that the caller chooses, such as a new ID.
	chosen string
	// Open allows access with the code of the instance.
	Open bool
	// Public allows access without a key.
	Public bool
	// Always allows access without a hub.
	Always bool
}

// An answerDoc documents one status of a route's answers.
type answerDoc struct {
	Status int
	schema string // a name in answerSchemas; "" for no body
	says   string
}

// pathValues maps the names in braces of a path to their values.
type pathValues map[string]string

func (p pathValues) instance() durable.InstanceID { return durable.InstanceID(p["instanceId"]) }

// Routes returns all routes in matching order, which is the order of the extension (HttpApiHandler.cs,
// HandleRequestAsync).
func Routes() []Route {
	var routes []Route
	for _, part := range [][]Route{orchestratorRoutes, entityRoutes, instanceRoutes, controlRoutes, selfRoutes()} {
		routes = append(routes, part...)
	}
	return routes
}

// Match returns the path values in segments. ok is false if the segments do not match the path.
func (r *Route) Match(segments []string) (values pathValues, ok bool) {
	names := strings.Split(r.Path, "/")
	if len(names) != len(segments) {
		return nil, false
	}
	values = pathValues{}
	for i, name := range names {
		switch {
		case strings.HasPrefix(name, "{"):
			values[strings.Trim(name, "{}")] = segments[i]
		case !strings.EqualFold(name, segments[i]):
			return nil, false
		}
	}
	return values, true
}

// Answers of several routes.
var (
	notFound404   = answerDoc{http.StatusNotFound, "", "The instance does not exist."}
	ended410      = answerDoc{http.StatusGone, "", "The instance has ended."}
	badRequest400 = answerDoc{http.StatusBadRequest, "Error", "The request is not valid; the body has the reason."}
	started202    = answerDoc{http.StatusAccepted, "CheckStatus", "Started. `Location` is the URL of the status."}
	output200     = answerDoc{http.StatusOK, "Any", "The instance ended within `timeout`: its output if it completed, otherwise its status."}
	failed500     = answerDoc{http.StatusInternalServerError, "Any", "The instance failed, and `returnInternalServerErrorOnFailure` is true."}
	accepted202   = answerDoc{http.StatusAccepted, "", "Accepted."}
)

var orchestratorRoutes = []Route{
	{
		Method: http.MethodPost, Path: "orchestrators/{functionName}", summary: "Starts an instance under a new ID.",
		Query: []string{"timeout", "pollingInterval", "version", "returnInternalServerErrorOnFailure"}, Body: "The input as JSON, if any.",
		Answers:   []answerDoc{output200, started202, badRequest400, failed500},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.start(p["functionName"], "") },
	},
	{
		Method: http.MethodPost, Path: "orchestrators/{functionName}/{instanceId}", summary: "Starts an instance.", chosen: "instanceId",
		Query: []string{"timeout", "pollingInterval", "version", "returnInternalServerErrorOnFailure"}, Body: "The input as JSON, if any.",
		Answers:   []answerDoc{output200, started202, badRequest400, {http.StatusConflict, "Error", "An instance with this ID is running."}, failed500},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.start(p["functionName"], p.instance()) },
	},
}

var entityRoutes = []Route{
	{
		Method: http.MethodGet, Path: "entities", summary: "Lists entities.",
		Query:     []string{"lastOperationTimeFrom", "lastOperationTimeTo", "fetchState", "top"},
		Answers:   []answerDoc{{http.StatusOK, "Entities", "A page of entities."}, badRequest400},
		operation: func(m *API, p pathValues) operation { return entityAPI{m}.listEntities("") },
	},
	{
		Method: http.MethodGet, Path: "entities/{entityName}", summary: "Lists the entities of a name.",
		Query:     []string{"lastOperationTimeFrom", "lastOperationTimeTo", "fetchState", "top"},
		Answers:   []answerDoc{{http.StatusOK, "Entities", "A page of entities."}, badRequest400},
		operation: func(m *API, p pathValues) operation { return entityAPI{m}.listEntities(p["entityName"]) },
	},
	{
		Method: http.MethodGet, Path: "entities/{entityName}/{entityKey}", summary: "Reads the state of an entity.",
		Answers:   []answerDoc{{http.StatusOK, "Any", "The state."}, {http.StatusNotFound, "", "The entity does not exist or has no state."}, badRequest400},
		operation: func(m *API, p pathValues) operation { return entityAPI{m}.readEntity(p["entityName"], p["entityKey"]) },
	},
	{
		Method: http.MethodPost, Path: "entities/{entityName}", summary: "Signals the entity with the empty key.",
		Query: []string{"op"}, Body: "The input of the operation, if any.",
		Answers:   []answerDoc{accepted202, badRequest400},
		operation: func(m *API, p pathValues) operation { return entityAPI{m}.signalEntity(p["entityName"], "") },
	},
	{
		Method: http.MethodPost, Path: "entities/{entityName}/{entityKey}", summary: "Signals an entity.", chosen: "entityKey",
		Query: []string{"op"}, Body: "The input of the operation, if any.",
		Answers: []answerDoc{accepted202, badRequest400},
		operation: func(m *API, p pathValues) operation {
			return entityAPI{m}.signalEntity(p["entityName"], p["entityKey"])
		},
	},
	{
		Method: http.MethodDelete, Path: "entities/{entityName}", summary: "Signals the entity with the empty key to delete its state.",
		Answers:   []answerDoc{accepted202, badRequest400},
		operation: func(m *API, p pathValues) operation { return entityAPI{m}.deleteEntity(p["entityName"], "") },
	},
	{
		Method: http.MethodDelete, Path: "entities/{entityName}/{entityKey}", summary: "Signals an entity to delete its state.", chosen: "entityKey",
		Answers: []answerDoc{accepted202, badRequest400},
		operation: func(m *API, p pathValues) operation {
			return entityAPI{m}.deleteEntity(p["entityName"], p["entityKey"])
		},
	},
}

var instanceRoutes = []Route{
	{
		Method: http.MethodGet, Path: "instances", summary: "Lists instances.",
		Query:     []string{"createdTimeFrom", "createdTimeTo", "runtimeStatus", "instanceIdPrefix", "showInput", "showOutput", "top"},
		Answers:   []answerDoc{{http.StatusOK, "Statuses", "A page of statuses. `x-ms-continuation-token` asks for the next one; it is empty on the last."}, badRequest400},
		operation: func(m *API, _ pathValues) operation { return instanceAPI{m}.list },
	},
	{
		Method: http.MethodDelete, Path: "instances", summary: "Purges the ended instances that match.",
		Query: []string{"createdTimeFrom", "createdTimeTo", "runtimeStatus", "instanceIdPrefix"},
		Answers: []answerDoc{
			{http.StatusOK, "Purged", "The number of purged instances."},
			{http.StatusBadRequest, "Text", "`createdTimeFrom` is missing, or a filter is not valid."},
			{http.StatusNotFound, "", "No instance matched."},
		},
		operation: func(m *API, _ pathValues) operation { return instanceAPI{m}.purgeMany },
	},
	{
		Method: http.MethodGet, Path: "instances/{instanceId}", summary: "Reads the status of an instance.", Open: true,
		Query: []string{"showHistory", "showHistoryOutput", "showInput", "showOutput", "returnInternalServerErrorOnFailure"},
		Answers: []answerDoc{
			{http.StatusOK, "Status", "The instance has ended."},
			{http.StatusAccepted, "Status", "The instance has not ended. `Location` is the URL to poll, `Retry-After` the delay."},
			notFound404,
			{http.StatusInternalServerError, "StatusOrError", "The instance failed, and `returnInternalServerErrorOnFailure` is true; or an unexpected error."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.status(p.instance()) },
	},
	{
		Method: http.MethodGet, Path: "instances/{instanceId}/tracking", summary: "Reads the tracking records of an instance.", Open: true,
		Query: []string{"showInput", "showHistoryOutput", "top"},
		Answers: []answerDoc{
			{http.StatusOK, "Tracking", "A page of records, oldest first. `x-ms-continuation-token` asks for the next one; it is empty on the last."},
			badRequest400,
			{http.StatusNotFound, "", "No records of the instance exist."},
			{http.StatusNotImplemented, "Error", "The hub does not track its orchestrations (`storageProvider.trackingEnabled`)."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.tracking(p.instance()) },
	},
	{
		Method: http.MethodGet, Path: "instances/{instanceId}/why", summary: "Reads the reasons why an instance is waiting, with the lines of its code.", Open: true,
		Answers:   []answerDoc{{http.StatusOK, "Why", "At least one reason."}, notFound404},
		operation: func(m *API, p pathValues) operation { return whyAPI{m}.why(p.instance()) },
	},
	{
		Method: http.MethodGet, Path: "instances/{instanceId}/history", summary: "Reads the complete history of an instance's current execution.", Open: true,
		Answers:   []answerDoc{{http.StatusOK, "History", "The complete events."}, notFound404},
		operation: func(m *API, p pathValues) operation { return whyAPI{m}.history(p.instance()) },
	},
	{
		Method: http.MethodDelete, Path: "instances/{instanceId}", summary: "Purges an instance that has ended.", Open: true,
		Answers: []answerDoc{
			{http.StatusOK, "Purged", "The instance was purged."}, notFound404, {http.StatusPreconditionFailed, "Text", "The instance has not ended."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.purge(p.instance()) },
	},
}

var controlRoutes = []Route{
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/raiseEvent/{eventName}", summary: "Sends an event to an instance.", Open: true, chosen: "eventName",
		Body:      "The event's payload, `application/json`; an empty one is null.",
		Answers:   []answerDoc{accepted202, badRequest400, notFound404, ended410},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.raiseEvent(p.instance(), p["eventName"]) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/terminate", summary: "Terminates an instance.", Open: true,
		Query: []string{"reason"}, Answers: []answerDoc{accepted202, notFound404, ended410},
		operation: func(m *API, p pathValues) operation { return accepted(p.instance(), instanceAPI{m}.terminate) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/suspend", summary: "Suspends an instance.", Open: true,
		Query: []string{"reason"}, Answers: []answerDoc{accepted202, notFound404, ended410, wrongStatus500},
		operation: func(m *API, p pathValues) operation { return accepted(p.instance(), m.instances.Suspend) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/resume", summary: "Resumes a suspended instance.", Open: true,
		Query: []string{"reason"}, Answers: []answerDoc{accepted202, notFound404, ended410, wrongStatus500},
		operation: func(m *API, p pathValues) operation { return accepted(p.instance(), m.instances.Resume) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/rewind", summary: "Rewinds a failed instance: the failed steps run again.", Open: true,
		Query: []string{"reason"},
		Answers: []answerDoc{
			accepted202,
			{http.StatusNotFound, "Text", "The instance does not exist."},
			{http.StatusPreconditionFailed, "Text", "The instance has not failed, or held locks until it failed."},
			{http.StatusNotImplemented, "Error", "The hub's storage cannot rewind."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.rewind(p.instance()) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/restart", summary: "Starts an instance's orchestrator again with the same input.", Open: true,
		Query: []string{"restartWithNewInstanceId", "timeout", "pollingInterval", "returnInternalServerErrorOnFailure"},
		Answers: []answerDoc{
			output200, started202,
			{http.StatusBadRequest, "Error", "The instance does not exist."},
			{http.StatusConflict, "Error", "The instance has not ended, and `restartWithNewInstanceId` is false."},
			failed500,
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.restart(p.instance()) },
	},
}

var wrongStatus500 = answerDoc{http.StatusInternalServerError, "Error", "The instance's status does not allow this."}

// selfRoutes are routes about the app itself. The extension has only makeprimary.
func selfRoutes() []Route {
	return []Route{
		{
			Method: http.MethodPost, Path: "makeprimary", summary: "Makes this app the active one of several apps on the task hub.",
			Answers:   []answerDoc{{http.StatusOK, "", "The app becomes the active one."}, badRequest400},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.makePrimary },
		},
		{
			Method: http.MethodPost, Path: "undecodable/retry", summary: "Moves undecodable messages that were set aside back into their queues.",
			Answers:   []answerDoc{{http.StatusOK, "Retried", "The number of messages."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.retryUndecodable },
		},
		{
			Method: http.MethodPost, Path: "backup", summary: "Writes a backup of a hub in a local file into a new file on the app's machine.",
			Query:     []string{"path"},
			Answers:   []answerDoc{{http.StatusOK, "Backup", "The backup is complete."}, badRequest400, {http.StatusNotImplemented, "Error", "The hub is not in a local file."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.backup },
		},
		{
			Method: http.MethodGet, Path: "scale", summary: "Reads the load of the hub and the number of workers that it needs.",
			Answers:   []answerDoc{{http.StatusOK, "Scale", "The current load."}, {http.StatusNotImplemented, "Error", "The hub's storage does not report its load."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.scale },
		},
		{
			Method: http.MethodGet, Path: "configuration", Always: true, summary: "Reads all settings and their sources.",
			Answers:   []answerDoc{{http.StatusOK, "Configuration", "The effective configuration, secrets masked."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.configuration },
		},
		{
			Method: http.MethodGet, Path: "openapi.json", Always: true, summary: "Reads the OpenAPI document of this API.",
			Answers:   []answerDoc{{http.StatusOK, "Any", "The document."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.openAPI },
		},
		{
			Method: http.MethodGet, Path: "health/live", Always: true, summary: "Reports that the process is alive.", Public: true,
			Answers:   []answerDoc{{http.StatusOK, "Health", "The process is alive."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.live },
		},
		{
			Method: http.MethodGet, Path: "health/ready", Always: true, summary: "Reports whether the app can serve, with the reasons if it cannot.", Public: true,
			Answers:   []answerDoc{{http.StatusOK, "Health", "The app can serve."}, {http.StatusServiceUnavailable, "Health", "The app cannot serve."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.ready },
		},
	}
}
