package handler

import (
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A managementRoute is an operation of the management API. From the routes come
// what requests are matched with and the OpenAPI document.
type managementRoute struct {
	method  string
	path    string // below the base, with names in braces
	summary string
	query   []string // parameters, of those in queryParameters
	body    string   // "" if there is none, else what it is
	answers []answerDoc

	// operation returns what answers a request whose path has these values.
	operation func(m *managementAPI, path pathValues) operation

	// chosen is which name in braces stands for what the caller names, rather than
	// for what is there.
	chosen string
	// open says that whoever has the code of the instance may do it.
	open bool
	// public says that it needs no key.
	public bool
	// always says that it is answered whatever state the hub is in.
	always bool
}

// An answerDoc is a status that a route answers with.
type answerDoc struct {
	status int
	schema string // a name in the document's schemas; "" if there is no body
	says   string
}

// pathValues are what stands in a path where its template has names in braces.
type pathValues map[string]string

func (p pathValues) instance() durable.InstanceID { return durable.InstanceID(p["instanceId"]) }

// managementRoutes returns all routes, in the order in which they are matched,
// which is that of the extension (HttpApiHandler.cs, HandleRequestAsync).
func managementRoutes() []managementRoute {
	var routes []managementRoute
	for _, part := range [][]managementRoute{orchestratorRoutes, entityRoutes, instanceRoutes, controlRoutes, selfRoutes()} {
		routes = append(routes, part...)
	}
	return routes
}

// match returns the values in segments where the route's path has names; ok is
// false if they do not fit.
func (r *managementRoute) match(segments []string) (values pathValues, ok bool) {
	names := strings.Split(r.path, "/")
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

var orchestratorRoutes = []managementRoute{
	{
		method: http.MethodPost, path: "orchestrators/{functionName}", summary: "Starts an instance under a new ID.",
		query: []string{"timeout", "pollingInterval", "version", "returnInternalServerErrorOnFailure"}, body: "The input, if any.",
		answers:   []answerDoc{output200, started202, badRequest400, failed500},
		operation: func(m *managementAPI, p pathValues) operation { return m.start(p["functionName"], "") },
	},
	{
		method: http.MethodPost, path: "orchestrators/{functionName}/{instanceId}", summary: "Starts an instance.", chosen: "instanceId",
		query: []string{"timeout", "pollingInterval", "version", "returnInternalServerErrorOnFailure"}, body: "The input, if any.",
		answers:   []answerDoc{output200, started202, badRequest400, {http.StatusConflict, "Error", "The ID is that of a live instance."}, failed500},
		operation: func(m *managementAPI, p pathValues) operation { return m.start(p["functionName"], p.instance()) },
	},
}

var entityRoutes = []managementRoute{
	{
		method: http.MethodGet, path: "entities", summary: "Lists entities.",
		query:     []string{"lastOperationTimeFrom", "lastOperationTimeTo", "fetchState", "top"},
		answers:   []answerDoc{{http.StatusOK, "Entities", "A page of entities."}, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.listEntities("") },
	},
	{
		method: http.MethodGet, path: "entities/{entityName}", summary: "Lists the entities of a name.",
		query:     []string{"lastOperationTimeFrom", "lastOperationTimeTo", "fetchState", "top"},
		answers:   []answerDoc{{http.StatusOK, "Entities", "A page of entities."}, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.listEntities(p["entityName"]) },
	},
	{
		method: http.MethodGet, path: "entities/{entityName}/{entityKey}", summary: "Reads the state of an entity.",
		answers:   []answerDoc{{http.StatusOK, "Any", "The state."}, {http.StatusNotFound, "", "There is no such entity, or it has no state."}, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.readEntity(p["entityName"], p["entityKey"]) },
	},
	{
		method: http.MethodPost, path: "entities/{entityName}", summary: "Signals the entity with the empty key.",
		query: []string{"op"}, body: "The input of the operation, if any.",
		answers:   []answerDoc{accepted202, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.signalEntity(p["entityName"], "") },
	},
	{
		method: http.MethodPost, path: "entities/{entityName}/{entityKey}", summary: "Signals an entity.", chosen: "entityKey",
		query: []string{"op"}, body: "The input of the operation, if any.",
		answers:   []answerDoc{accepted202, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.signalEntity(p["entityName"], p["entityKey"]) },
	},
	{
		method: http.MethodDelete, path: "entities/{entityName}", summary: "Signals the entity with the empty key to delete its state.",
		answers:   []answerDoc{accepted202, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.deleteEntity(p["entityName"], "") },
	},
	{
		method: http.MethodDelete, path: "entities/{entityName}/{entityKey}", summary: "Signals an entity to delete its state.", chosen: "entityKey",
		answers:   []answerDoc{accepted202, badRequest400},
		operation: func(m *managementAPI, p pathValues) operation { return m.deleteEntity(p["entityName"], p["entityKey"]) },
	},
}

var instanceRoutes = []managementRoute{
	{
		method: http.MethodGet, path: "instances", summary: "Lists instances.",
		query:     []string{"createdTimeFrom", "createdTimeTo", "runtimeStatus", "instanceIdPrefix", "showInput", "top"},
		answers:   []answerDoc{{http.StatusOK, "Statuses", "A page of statuses. `x-ms-continuation-token` asks for the next one; it is empty on the last."}, badRequest400},
		operation: func(m *managementAPI, _ pathValues) operation { return m.list },
	},
	{
		method: http.MethodDelete, path: "instances", summary: "Purges the instances that match, of those that have ended.",
		query: []string{"createdTimeFrom", "createdTimeTo", "runtimeStatus", "instanceIdPrefix"},
		answers: []answerDoc{
			{http.StatusOK, "Purged", "How many were purged."},
			{http.StatusBadRequest, "Text", "`createdTimeFrom` is missing."},
			{http.StatusNotFound, "", "None matched."},
		},
		operation: func(m *managementAPI, _ pathValues) operation { return m.purgeMany },
	},
	{
		method: http.MethodGet, path: "instances/{instanceId}", summary: "Tells the status of an instance.", open: true,
		query: []string{"showHistory", "showHistoryOutput", "showInput", "returnInternalServerErrorOnFailure"},
		answers: []answerDoc{
			{http.StatusOK, "Status", "It has ended."},
			{http.StatusAccepted, "Status", "It has not. `Location` is where to ask again, `Retry-After` when."},
			notThere,
			{http.StatusInternalServerError, "StatusOrError", "It has failed, and `returnInternalServerErrorOnFailure` is true; or something unexpected happened."},
		},
		operation: func(m *managementAPI, p pathValues) operation { return m.status(p.instance()) },
	},
	{
		method: http.MethodGet, path: "instances/{instanceId}/tracking", summary: "Reads the audit of an instance, if the hub keeps one.", open: true,
		query: []string{"showInput", "showHistoryOutput", "top"},
		answers: []answerDoc{
			{http.StatusOK, "Tracking", "A page of records, oldest first. `x-ms-continuation-token` asks for the next one; it is empty on the last."},
			badRequest400,
			{http.StatusNotFound, "", "Nothing was recorded of such an instance."},
			{http.StatusNotImplemented, "Error", "The hub keeps no audit."},
		},
		operation: func(m *managementAPI, p pathValues) operation { return m.tracking(p.instance()) },
	},
	{
		method: http.MethodDelete, path: "instances/{instanceId}", summary: "Purges an instance that has ended.", open: true,
		answers: []answerDoc{
			{http.StatusOK, "Purged", "It was purged."}, notThere, {http.StatusPreconditionFailed, "Text", "It has not ended."},
		},
		operation: func(m *managementAPI, p pathValues) operation { return m.purge(p.instance()) },
	},
}

var controlRoutes = []managementRoute{
	{
		method: http.MethodPost, path: "instances/{instanceId}/raiseEvent/{eventName}", summary: "Sends an event to an instance.", open: true, chosen: "eventName",
		body:      "The event's payload, `application/json`; an empty one is null.",
		answers:   []answerDoc{accepted202, badRequest400, notThere, hasEnded},
		operation: func(m *managementAPI, p pathValues) operation { return m.raiseEvent(p.instance(), p["eventName"]) },
	},
	{
		method: http.MethodPost, path: "instances/{instanceId}/terminate", summary: "Ends an instance from outside.", open: true,
		query: []string{"reason"}, answers: []answerDoc{accepted202, notThere, hasEnded},
		operation: func(m *managementAPI, p pathValues) operation { return accepted(p.instance(), m.terminate) },
	},
	{
		method: http.MethodPost, path: "instances/{instanceId}/suspend", summary: "Suspends an instance.", open: true,
		query: []string{"reason"}, answers: []answerDoc{accepted202, notThere, hasEnded, wrongState},
		operation: func(m *managementAPI, p pathValues) operation { return accepted(p.instance(), m.instances.Suspend) },
	},
	{
		method: http.MethodPost, path: "instances/{instanceId}/resume", summary: "Lets a suspended instance go on.", open: true,
		query: []string{"reason"}, answers: []answerDoc{accepted202, notThere, hasEnded, wrongState},
		operation: func(m *managementAPI, p pathValues) operation { return accepted(p.instance(), m.instances.Resume) },
	},
	{
		method: http.MethodPost, path: "instances/{instanceId}/rewind", summary: "Takes back the failure of an instance.", open: true,
		query: []string{"reason"},
		answers: []answerDoc{
			accepted202,
			{http.StatusNotFound, "Text", "There is no such instance."},
			{http.StatusPreconditionFailed, "Text", "It has not failed."},
			{http.StatusNotImplemented, "Error", "What stores the hub cannot rewind."},
		},
		operation: func(m *managementAPI, p pathValues) operation { return m.rewind(p.instance()) },
	},
	{
		method: http.MethodPost, path: "instances/{instanceId}/restart", summary: "Starts an instance's orchestrator again with the same input.", open: true,
		query: []string{"restartWithNewInstanceId", "timeout", "pollingInterval", "returnInternalServerErrorOnFailure"},
		answers: []answerDoc{
			output200, started202,
			{http.StatusBadRequest, "Error", "There is no such instance."},
			{http.StatusConflict, "Error", "It has not ended, and its ID was to be used again."},
			failed500,
		},
		operation: func(m *managementAPI, p pathValues) operation { return m.restart(p.instance()) },
	},
}

var wrongState = answerDoc{http.StatusInternalServerError, "Error", "It is not in a status in which this can be done."}

// selfRoutes are about the app itself. All but makeprimary are of this package,
// not of the extension.
func selfRoutes() []managementRoute {
	return []managementRoute{
		{
			method: http.MethodPost, path: "makeprimary", summary: "Makes this app the one whose processes work on the task hub.",
			answers:   []answerDoc{{http.StatusOK, "", "It will be."}, badRequest400},
			operation: func(m *managementAPI, _ pathValues) operation { return m.makePrimary },
		},
		{
			method: http.MethodPost, path: "undecodable/retry", summary: "Puts messages that could not be decoded, and were set aside, back into their queues.",
			answers:   []answerDoc{{http.StatusOK, "Retried", "How many there were."}},
			operation: func(m *managementAPI, _ pathValues) operation { return m.retryUndecodable },
		},
		{
			method: http.MethodGet, path: "scale", summary: "Tells the load of the hub, and how many workers it is worth.",
			answers:   []answerDoc{{http.StatusOK, "Scale", "The load now."}, {http.StatusNotImplemented, "Error", "What stores the hub cannot tell."}},
			operation: func(m *managementAPI, _ pathValues) operation { return m.scale },
		},
		{
			method: http.MethodGet, path: "configuration", always: true, summary: "Tells what all settings are, and from where.",
			answers:   []answerDoc{{http.StatusOK, "Configuration", "The effective configuration, secrets masked."}},
			operation: func(m *managementAPI, _ pathValues) operation { return m.configuration },
		},
		{
			method: http.MethodGet, path: "openapi.json", always: true, summary: "This document.",
			answers:   []answerDoc{{http.StatusOK, "Any", "The document."}},
			operation: func(m *managementAPI, _ pathValues) operation { return m.openAPI },
		},
		{
			method: http.MethodGet, path: "health/live", always: true, summary: "Tells that the process lives.", public: true,
			answers:   []answerDoc{{http.StatusOK, "Health", "It does."}},
			operation: func(m *managementAPI, _ pathValues) operation { return m.live },
		},
		{
			method: http.MethodGet, path: "health/ready", always: true, summary: "Tells whether the app can serve, and if not, why.", public: true,
			answers:   []answerDoc{{http.StatusOK, "Health", "It can."}, {http.StatusServiceUnavailable, "Health", "It cannot."}},
			operation: func(m *managementAPI, _ pathValues) operation { return m.ready },
		},
	}
}
