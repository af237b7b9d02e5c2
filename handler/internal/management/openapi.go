package management

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// A parameterDoc describes a parameter of the query string.
type parameterDoc struct {
	schema schemaNode
	says   string
}

// queryParameters are those that some routes have.
var queryParameters = map[string]parameterDoc{
	"timeout":                            {numberSchema, "With `pollingInterval`: how many seconds to wait for the instance to end."},
	"pollingInterval":                    {numberSchema, "With `timeout`: how often to look, in seconds."},
	"version":                            {textSchema, "The instance's version, else `defaultVersion`."},
	"returnInternalServerErrorOnFailure": {flagSchema, "Answers 500 instead of 200 if the instance has failed."},
	"showHistory":                        {flagSchema, "With the history."},
	"showHistoryOutput":                  {flagSchema, "With the results in the history."},
	"showInput":                          {flagSchema, "With the input; `true` by default."},
	"createdTimeFrom":                    {timeSchema, "Created at this time or later."},
	"createdTimeTo":                      {timeSchema, "Created at this time or earlier."},
	"runtimeStatus":                      {textSchema, "A list of statuses, separated by commas; it may be repeated."},
	"instanceIdPrefix":                   {textSchema, "What IDs begin with."},
	"top":                                {schemaNode{"type": "integer", "minimum": 1}, "How many a page has at most; 100 by default."},
	"lastOperationTimeFrom":              {timeSchema, "Worked on at this time or later."},
	"lastOperationTimeTo":                {timeSchema, "Worked on at this time or earlier."},
	"fetchState":                         {flagSchema, "With the state; `false` by default."},
	"op":                                 {textSchema, "The name of the operation."},
	"reason":                             {textSchema, "Why, for whoever looks later."},
	"restartWithNewInstanceId":           {flagSchema, "Under a new ID; `true` by default."},
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

// openAPI answers GET openapi.json.
func (m *API) openAPI(c echo.Context, _ web.Query) error {
	l := LinksOf(c)
	return web.WriteJSON(c, http.StatusOK, OpenAPIDocument(m.Routes, l.origin+l.base))
}

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
		at[strings.ToLower(route.Method)] = route.document()
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
			},
		},
		"security": []schemaNode{{"code": []string{}}, {"header": []string{}}, {}},
	}
}

// document describes one operation.
func (r *Route) document() schemaNode {
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
	if len(r.Answers) > 0 && r.Answers[0].isPage() {
		parameters = append(parameters, schemaNode{"name": HeaderContinuation, "in": "header", "schema": textSchema, "description": "Asks for the next page."})
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
		answers[strconv.Itoa(a.Status)] = a.document()
	}
	out := schemaNode{"summary": r.summary, "operationId": r.operationID(), "parameters": parameters, "responses": answers}
	if r.Body != "" {
		out["requestBody"] = schemaNode{"description": r.Body, "content": jsonContent(anySchema)}
	}
	if r.Public {
		out["security"] = []schemaNode{}
	}
	return out
}

// operationID names an operation in the way of code that is made of the
// document.
func (r *Route) operationID() string {
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

func (a answerDoc) isPage() bool {
	return a.schema == "Statuses" || a.schema == "Entities" || a.schema == "Tracking"
}

func (a answerDoc) document() schemaNode {
	out := schemaNode{"description": a.says}
	if a.schema != "" {
		out["content"] = jsonContent(schemaNode{"$ref": "#/components/schemas/" + a.schema})
	}
	headers := schemaNode{}
	if a.isPage() {
		headers[HeaderContinuation] = schemaNode{"schema": textSchema, "description": "Empty on the last page. A page may have fewer than top and not be the last."}
	}
	if a.schema == "Statuses" || a.schema == "Entities" || a.schema == "Purged" {
		headers[HeaderUnreadable] = schemaNode{"schema": textSchema, "description": "How many were left out since what is stored of them cannot be read, if any were."}
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
