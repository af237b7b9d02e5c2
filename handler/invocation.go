package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// notFound answers requests that no route takes. One of the host's default
// invocation protocol is recognised by its body: the host sends it for an HTTP
// function if it does not know, or was not told, to pass the request itself on,
// and for every function with another trigger
// (azure-functions-host: Workers/Http/DefaultHttpWorkerService.cs).
func (s *Server) notFound(c echo.Context) error {
	r := c.Request()
	name := strings.Trim(r.URL.Path, "/")
	if r.Method != http.MethodPost || name == "" || strings.Contains(name, "/") {
		return echo.ErrNotFound
	}
	var envelope struct {
		Data     map[string]json.RawMessage
		Metadata json.RawMessage
	}
	body, err := readJSON(r.Body)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return err
	}
	if err != nil || json.Unmarshal(body, &envelope) != nil || envelope.Data == nil || envelope.Metadata == nil {
		return echo.ErrNotFound
	}
	if isHTTPTrigger(envelope.Data) {
		return s.refuseHTTPInvocation(c, name)
	}
	message := fmt.Sprintf("Function %q has a trigger that this app does not serve.", name)
	s.logger.Error("invocation refused", "function", name, "reason", message)
	return writeJSON(c, http.StatusInternalServerError, errorBody{Message: message})
}

// isHTTPTrigger reports whether one of a function's inputs is an HTTP request.
func isHTTPTrigger(data map[string]json.RawMessage) bool {
	for _, input := range data {
		var request struct{ URL, Method string }
		if json.Unmarshal(input, &request) == nil && request.URL != "" && request.Method != "" {
			return true
		}
	}
	return false
}

// refuseHTTPInvocation tells the caller of an HTTP function, in the form in
// which the host passes it on, what is missing in host.json. The answer must
// have status 200 and must not be empty: of others the host tells nothing, or
// never ends the invocation.
func (s *Server) refuseHTTPInvocation(c echo.Context, name string) error {
	message := fmt.Sprintf("The Functions host wraps the requests of function %q instead of passing them on. "+
		"Set customHandler.enableProxyingHttpRequest, or on older hosts enableForwardingHttpRequest, to true in host.json, "+
		"and give the function one httpTrigger and one http output.", name)
	s.logger.Error("invocation refused", "function", name, "reason", message)
	text, err := marshalJSON(errorBody{Message: message})
	if err != nil {
		return err
	}
	type httpOutput struct {
		StatusCode int               `json:"statusCode"`
		Headers    map[string]string `json:"headers"`
		Body       string            `json:"body"`
	}
	output := httpOutput{http.StatusNotImplemented, map[string]string{"Content-Type": contentTypeJSON}, string(text)}
	return writeJSON(c, http.StatusOK, struct {
		Outputs     map[string]httpOutput
		Logs        []string
		ReturnValue any
	}{map[string]httpOutput{"res": output}, []string{message}, nil})
}
