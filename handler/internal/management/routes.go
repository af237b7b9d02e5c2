package management

import (
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A Route is an operation of the management API. From the routes come
// what requests are matched with and the OpenAPI document.
type Route struct {
	Method  string
	Path    string // below the base, with names in braces
	summary string
	Query   []string // parameters, of those in queryParameters
	Body    string   // "" if there is none, else what it is
	Answers []answerDoc

	// operation returns what answers a request whose path has these values.
	operation func(m *API, path pathValues) operation

	// chosen is which name in braces stands for what the caller names, rather than
	// for what is there.
	chosen string
	// open says that whoever has the code of the instance may do it.
	Open bool
	// public says that it needs no key.
	Public bool
	// always says that it is answered whatever state the hub is in.
	Always bool
}

// An answerDoc is a status that a route answers with.
type answerDoc struct {
	Status int
	schema string // a name in the document's schemas; "" if there is no body
	says   string
}

// pathValues are what stands in a path where its template has names in braces.
type pathValues map[string]string

func (p pathValues) instance() durable.InstanceID { return durable.InstanceID(p["instanceId"]) }

// Routes returns all routes, in the order in which they are matched,
// which is that of the extension (HttpApiHandler.cs, HandleRequestAsync).
func Routes() []Route {
	var routes []Route
	for _, part := range [][]Route{orchestratorRoutes, entityRoutes, instanceRoutes, controlRoutes, selfRoutes()} {
		routes = append(routes, part...)
	}
	return routes
}

// Match returns the values in segments where the route's path has names; ok is
// false if they do not fit.
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

// Answers that several routes have.
var (
	notThere      = answerDoc{http.StatusNotFound, "", "There is no such instance."}
	hasEnded      = answerDoc{http.StatusGone, "", "The instance has ended."}
	badRequest400 = answerDoc{http.StatusBadRequest, "Error", "The request is wrong: the body says how."}
	started202    = answerDoc{http.StatusAccepted, "CheckStatus", "Started. `Location` is where to ask for the status, `Retry-After` when."}
	output200     = answerDoc{http.StatusOK, "Any", "It has ended in time: its output if it completed, else its status."}
	failed500     = answerDoc{http.StatusInternalServerError, "Any", "The instance has failed, and that was to be answered so."}
	accepted202   = answerDoc{http.StatusAccepted, "", "Accepted."}
)

var orchestratorRoutes = []Route{
	{
		Method: http.MethodPost, Path: "orchestrators/{functionName}", summary: "Starts an instance under a new ID.",
		Query: []string{"timeout", "pollingInterval", "version", "returnInternalServerErrorOnFailure"}, Body: "The input, if any.",
		Answers:   []answerDoc{output200, started202, badRequest400, failed500},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.start(p["functionName"], "") },
	},
	{
		Method: http.MethodPost, Path: "orchestrators/{functionName}/{instanceId}", summary: "Starts an instance.", chosen: "instanceId",
		Query: []string{"timeout", "pollingInterval", "version", "returnInternalServerErrorOnFailure"}, Body: "The input, if any.",
		Answers:   []answerDoc{output200, started202, badRequest400, {http.StatusConflict, "Error", "The ID is that of a live instance."}, failed500},
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
		Answers:   []answerDoc{{http.StatusOK, "Any", "The state."}, {http.StatusNotFound, "", "There is no such entity, or it has no state."}, badRequest400},
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
		Query:     []string{"createdTimeFrom", "createdTimeTo", "runtimeStatus", "instanceIdPrefix", "showInput", "top"},
		Answers:   []answerDoc{{http.StatusOK, "Statuses", "A page of statuses. `x-ms-continuation-token` asks for the next one; it is empty on the last."}, badRequest400},
		operation: func(m *API, _ pathValues) operation { return instanceAPI{m}.list },
	},
	{
		Method: http.MethodDelete, Path: "instances", summary: "Purges the instances that match, of those that have ended.",
		Query: []string{"createdTimeFrom", "createdTimeTo", "runtimeStatus", "instanceIdPrefix"},
		Answers: []answerDoc{
			{http.StatusOK, "Purged", "How many were purged."},
			{http.StatusBadRequest, "Text", "`createdTimeFrom` is missing."},
			{http.StatusNotFound, "", "None matched."},
		},
		operation: func(m *API, _ pathValues) operation { return instanceAPI{m}.purgeMany },
	},
	{
		Method: http.MethodGet, Path: "instances/{instanceId}", summary: "Tells the status of an instance.", Open: true,
		Query: []string{"showHistory", "showHistoryOutput", "showInput", "returnInternalServerErrorOnFailure"},
		Answers: []answerDoc{
			{http.StatusOK, "Status", "It has ended."},
			{http.StatusAccepted, "Status", "It has not. `Location` is where to ask again, `Retry-After` when."},
			notThere,
			{http.StatusInternalServerError, "StatusOrError", "It has failed, and `returnInternalServerErrorOnFailure` is true; or something unexpected happened."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.status(p.instance()) },
	},
	{
		Method: http.MethodGet, Path: "instances/{instanceId}/tracking", summary: "Reads the audit of an instance, if the hub keeps one.", Open: true,
		Query: []string{"showInput", "showHistoryOutput", "top"},
		Answers: []answerDoc{
			{http.StatusOK, "Tracking", "A page of records, oldest first. `x-ms-continuation-token` asks for the next one; it is empty on the last."},
			badRequest400,
			{http.StatusNotFound, "", "Nothing was recorded of such an instance."},
			{http.StatusNotImplemented, "Error", "The hub keeps no audit."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.tracking(p.instance()) },
	},
	{
		Method: http.MethodDelete, Path: "instances/{instanceId}", summary: "Purges an instance that has ended.", Open: true,
		Answers: []answerDoc{
			{http.StatusOK, "Purged", "It was purged."}, notThere, {http.StatusPreconditionFailed, "Text", "It has not ended."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.purge(p.instance()) },
	},
}

var controlRoutes = []Route{
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/raiseEvent/{eventName}", summary: "Sends an event to an instance.", Open: true, chosen: "eventName",
		Body:      "The event's payload, `application/json`; an empty one is null.",
		Answers:   []answerDoc{accepted202, badRequest400, notThere, hasEnded},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.raiseEvent(p.instance(), p["eventName"]) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/terminate", summary: "Ends an instance from outside.", Open: true,
		Query: []string{"reason"}, Answers: []answerDoc{accepted202, notThere, hasEnded},
		operation: func(m *API, p pathValues) operation { return accepted(p.instance(), instanceAPI{m}.terminate) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/suspend", summary: "Suspends an instance.", Open: true,
		Query: []string{"reason"}, Answers: []answerDoc{accepted202, notThere, hasEnded, wrongState},
		operation: func(m *API, p pathValues) operation { return accepted(p.instance(), m.instances.Suspend) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/resume", summary: "Lets a suspended instance go on.", Open: true,
		Query: []string{"reason"}, Answers: []answerDoc{accepted202, notThere, hasEnded, wrongState},
		operation: func(m *API, p pathValues) operation { return accepted(p.instance(), m.instances.Resume) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/rewind", summary: "Takes back the failure of an instance.", Open: true,
		Query: []string{"reason"},
		Answers: []answerDoc{
			accepted202,
			{http.StatusNotFound, "Text", "There is no such instance."},
			{http.StatusPreconditionFailed, "Text", "It has not failed."},
			{http.StatusNotImplemented, "Error", "What stores the hub cannot rewind."},
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.rewind(p.instance()) },
	},
	{
		Method: http.MethodPost, Path: "instances/{instanceId}/restart", summary: "Starts an instance's orchestrator again with the same input.", Open: true,
		Query: []string{"restartWithNewInstanceId", "timeout", "pollingInterval", "returnInternalServerErrorOnFailure"},
		Answers: []answerDoc{
			output200, started202,
			{http.StatusBadRequest, "Error", "There is no such instance."},
			{http.StatusConflict, "Error", "It has not ended, and its ID was to be used again."},
			failed500,
		},
		operation: func(m *API, p pathValues) operation { return instanceAPI{m}.restart(p.instance()) },
	},
}

var wrongState = answerDoc{http.StatusInternalServerError, "Error", "It is not in a status in which this can be done."}

// selfRoutes are about the app itself. All but makeprimary are of this package,
// not of the extension.
func selfRoutes() []Route {
	return []Route{
		{
			Method: http.MethodPost, Path: "makeprimary", summary: "Makes this app the one whose processes work on the task hub.",
			Answers:   []answerDoc{{http.StatusOK, "", "It will be."}, badRequest400},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.makePrimary },
		},
		{
			Method: http.MethodPost, Path: "undecodable/retry", summary: "Puts messages that could not be decoded, and were set aside, back into their queues.",
			Answers:   []answerDoc{{http.StatusOK, "Retried", "How many there were."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.retryUndecodable },
		},
		{
			Method: http.MethodGet, Path: "scale", summary: "Tells the load of the hub, and how many workers it is worth.",
			Answers:   []answerDoc{{http.StatusOK, "Scale", "The load now."}, {http.StatusNotImplemented, "Error", "What stores the hub cannot tell."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.scale },
		},
		{
			Method: http.MethodGet, Path: "configuration", Always: true, summary: "Tells what all settings are, and from where.",
			Answers:   []answerDoc{{http.StatusOK, "Configuration", "The effective configuration, secrets masked."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.configuration },
		},
		{
			Method: http.MethodGet, Path: "openapi.json", Always: true, summary: "This document.",
			Answers:   []answerDoc{{http.StatusOK, "Any", "The document."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.openAPI },
		},
		{
			Method: http.MethodGet, Path: "health/live", Always: true, summary: "Tells that the process lives.", Public: true,
			Answers:   []answerDoc{{http.StatusOK, "Health", "It does."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.live },
		},
		{
			Method: http.MethodGet, Path: "health/ready", Always: true, summary: "Tells whether the app can serve, and if not, why.", Public: true,
			Answers:   []answerDoc{{http.StatusOK, "Health", "It can."}, {http.StatusServiceUnavailable, "Health", "It cannot."}},
			operation: func(m *API, _ pathValues) operation { return appAPI{m}.ready },
		},
	}
}
