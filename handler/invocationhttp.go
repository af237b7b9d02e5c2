package handler

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// A wrappedRequest is an HTTP request that the host has wrapped in an invocation (azure-functions-host:
// Extensions/HttpRequestExtensions.cs, GetRequestAsJObject).
type wrappedRequest struct {
	URL     string `json:"Url"`
	Method  string
	Headers map[string][]string
	Body    json.RawMessage
}

// wrappedRequestIn decodes input as an HTTP request. It returns false if it is something else.
func wrappedRequestIn(input json.RawMessage) (wrappedRequest, bool) {
	var w wrappedRequest
	err := json.Unmarshal(input, &w)
	return w, err == nil && w.URL != "" && w.Method != ""
}

// request restores the request that the host wrapped. The host encodes binary bodies as Base64.
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

// callersKey marks the context of an unwrapped request. A caller of an HTTP function controls all parts
// of such a request.
type callersKey struct{}

// A recordedAnswer records an answer, to be wrapped.
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

// Flush does nothing: a wrapped answer is sent as a whole.
func (a *recordedAnswer) Flush() {}

var _ http.Flusher = (*recordedAnswer)(nil)
