package azsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// reply is the account's response to a request.
type reply struct {
	status  int
	code    string // the error code
	message string // the error message
	header  http.Header
	body    []byte
}

func newReply(status int, pairs ...string) *reply {
	r := &reply{status: status, header: http.Header{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		r.header.Set(pairs[i], pairs[i+1])
	}
	return r
}

func (r *reply) with(contentType string, body []byte) *reply {
	r.header.Set("Content-Type", contentType)
	r.body = body
	return r
}

// refusal returns an error response with the service's message.
func refusal(service string, status int, code, message string) *reply {
	r := newReply(status, "x-ms-error-code", code)
	r.code, r.message = code, message
	if service == TableService {
		return r.with("application/json;odata=minimalmetadata;streaming=true;charset=utf-8", odataError(code, message))
	}
	return r.with("application/xml", fmt.Appendf(nil, `<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message))
}

func odataError(code, message string) []byte {
	type text struct {
		Lang  string `json:"lang"`
		Value string `json:"value"`
	}
	body, err := json.Marshal(map[string]any{"odata.error": map[string]any{"code": code, "message": text{"en-US", message}}})
	if err != nil {
		panic(err) // text can always be encoded
	}
	return body
}

// response returns r as the response of a transport to raw.
func (r *reply) response(raw *http.Request, id string, now time.Time) *http.Response {
	h := r.header.Clone()
	h.Set("x-ms-request-id", id)
	h.Set("x-ms-version", raw.Header.Get("x-ms-version"))
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	body := r.body
	length := int64(len(body))
	if raw.Method == http.MethodHead {
		body = nil
	}
	return &http.Response{
		StatusCode: r.status, Status: fmt.Sprintf("%d %s", r.status, http.StatusText(r.status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: raw,
		ContentLength: length, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// jsonText returns the value of a JSON string. It returns any other JSON unchanged.
func jsonText(raw string) string {
	if n := len(raw) - 1; n > 0 && raw[0] == '"' && raw[n] == '"' && isPlain(raw[1:n]) {
		return raw[1:n]
	}
	var s string
	if json.Unmarshal([]byte(raw), &s) == nil {
		return s
	}
	return raw
}

// isPlain reports whether a text needs no escapes in JSON.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// writePart writes the response to one operation of a transaction.
func (r *reply) writePart(b *bytes.Buffer, boundary string) {
	fmt.Fprintf(b, "--%s\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 %d %s\r\n", boundary, r.status, http.StatusText(r.status))
	for _, name := range []string{"Content-Type", "Preference-Applied", "ETag"} {
		if v := r.header.Get(name); v != "" {
			fmt.Fprintf(b, "%s: %s\r\n", name, v)
		}
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	b.WriteString("\r\n")
}

// skewed returns r with all times shifted by d.
func (r *reply) skewed(d time.Duration) *reply {
	if d == 0 {
		return r
	}
	moved := *r
	moved.body = shiftTimes(r.body, d)
	moved.header = r.header.Clone()
	for name, values := range moved.header {
		for i := range values {
			moved.header[name][i] = string(shiftTimes([]byte(values[i]), d))
		}
	}
	if len(moved.body) != len(r.body) && moved.header.Get("Content-Length") != "" {
		moved.header.Set("Content-Length", strconv.Itoa(len(moved.body)))
	}
	return &moved
}
