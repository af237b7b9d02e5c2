package handler

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"

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
	if r.Method != http.MethodPost || name == "" || strings.Contains(name, "/") || !s.isFromHost(r) {
		return echo.ErrNotFound
	}
	body, err := web.ReadAll(r)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || errors.Is(err, web.ErrBodies) {
		return err
	}
	var envelope struct{ Data, Metadata map[string]json.RawMessage }
	if err != nil || json.Unmarshal(body, &envelope) != nil || envelope.Data == nil || envelope.Metadata == nil {
		return echo.ErrNotFound
	}
	for _, input := range envelope.Data {
		if request, ok := wrappedRequestIn(input); ok {
			return s.answerWrapped(c, name, request)
		}
	}
	message := fmt.Sprintf("Function %q has a trigger that this app does not serve: "+
		"add the function to App.Triggers, or remove its folder with -write-functions.", name)
	s.logger.Error("invocation refused", "function", name, "reason", message)
	return web.WriteJSON(c, http.StatusInternalServerError, web.ErrorBody{Message: message})
}

// A wrappedRequest is an HTTP request in an invocation
// (azure-functions-host: Extensions/HttpRequestExtensions.cs, GetRequestAsJObject).
type wrappedRequest struct {
	URL     string `json:"Url"`
	Method  string
	Headers map[string][]string
	Body    json.RawMessage
}

// wrappedRequestIn returns the HTTP request that an input is, if it is one.
func wrappedRequestIn(input json.RawMessage) (wrappedRequest, bool) {
	var w wrappedRequest
	err := json.Unmarshal(input, &w)
	return w, err == nil && w.URL != "" && w.Method != ""
}

// request makes the request again that the host wrapped. Bodies that are bytes
// come as Base64.
func (w wrappedRequest) request(wrapped *http.Request) (*http.Request, error) {
	body := []byte(w.Body)
	if text, ok := jsontext.Unquote(w.Body); ok {
		body = []byte(text)
		kind, _, _ := mime.ParseMediaType(http.Header(w.Headers).Get("Content-Type"))
		if content, err := base64.StdEncoding.DecodeString(text); err == nil && (kind == "application/octet-stream" || strings.HasPrefix(kind, "multipart/")) {
			body = content
		}
	} else if string(w.Body) == "null" {
		body = nil
	}
	r, err := http.NewRequestWithContext(wrapped.Context(), w.Method, w.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range w.Headers {
		for _, value := range values {
			r.Header.Add(name, value)
		}
	}
	r.Header.Set(web.HeaderInvocationID, wrapped.Header.Get(web.HeaderInvocationID))
	r.RemoteAddr = wrapped.RemoteAddr
	r = r.WithContext(context.WithValue(r.Context(), callersKey{}, true))
	return r, nil
}

// callersKey is under which key the context of a request says that it was taken out
// of a wrapped one: all of it is what a caller of an HTTP function sent.
type callersKey struct{}

// A recordedAnswer takes an answer that is to be wrapped.
type recordedAnswer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (a *recordedAnswer) Header() http.Header { return a.header }

func (a *recordedAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recordedAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// Flush does nothing: a wrapped answer goes as a whole.
func (a *recordedAnswer) Flush() {}

var _ http.Flusher = (*recordedAnswer)(nil)

// answerWrapped has the app's routes answer a request that the host wrapped, and
// wraps the answer. It must have status 200 and not be empty: of others the host
// tells nothing, or never ends the invocation.
func (s *Server) answerWrapped(c echo.Context, name string, wrapped wrappedRequest) error {
	s.wrapped.Do(func() {
		s.logger.Warn("the host wraps HTTP requests in JSON instead of passing them on: answers cannot stream or be binary; " +
			"set customHandler.enableProxyingHttpRequest and, for older hosts, enableForwardingHttpRequest to true in host.json")
	})
	answer := &recordedAnswer{header: http.Header{}}
	inner, err := wrapped.request(c.Request())
	if err != nil {
		return web.BadRequest("Function %q got a request that is none: %v", name, err)
	}
	s.echo.ServeHTTP(answer, inner)
	type httpOutput struct {
		StatusCode int               `json:"statusCode"`
		Headers    map[string]string `json:"headers"`
		Body       string            `json:"body"`
	}
	output := httpOutput{answer.status, map[string]string{}, answer.body.String()}
	if !utf8.ValidString(output.Body) {
		answer.header.Set("Content-Type", web.ContentTypeJSON)
		message, err := jsontext.Marshal(web.ErrorBody{Message: "The answer is not text, and the host wraps answers in JSON. " +
			"Set customHandler.enableProxyingHttpRequest, or on older hosts enableForwardingHttpRequest, to true in host.json."})
		if err != nil {
			return err
		}
		output.StatusCode, output.Body = http.StatusNotImplemented, string(message)
	}
	for name, values := range answer.header {
		output.Headers[name] = strings.Join(values, ", ")
	}
	return web.WriteJSON(c, http.StatusOK, struct {
		Outputs     map[string]httpOutput
		Logs        []string
		ReturnValue any
	}{map[string]httpOutput{"res": output}, []string{}, nil})
}
