package store

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// A responseError is a response of a storage service with status 400 or higher. Its text is a single
// line; the SDK's text also contains the headers and the body.
type responseError struct {
	refusal error // an *azcore.ResponseError
	text    string
}

// Error returns the request, the status, the service's code and message, and the request ID.
func (e *responseError) Error() string { return e.text }

// Unwrap returns the *azcore.ResponseError.
func (e *responseError) Unwrap() error { return e.refusal }

// messages matches the message in the body of an error response, up to the end of the line.
var messages = regexp.MustCompile(`<Message>([^<\r\n]*)|"message"\s*:\s*\{[^}]*?"value"\s*:\s*"([^"\\]*)`)

// responseErrorPolicy converts error responses into a *[responseError].
type responseErrorPolicy struct{}

// Do implements policy.Policy.
func (responseErrorPolicy) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	refusal := azruntime.NewResponseError(resp)
	code, message := CodeOf(refusal), ""
	if body, err := azruntime.Payload(resp); err == nil {
		if m := messages.FindSubmatch(body); m != nil {
			message = ": " + string(m[1]) + string(m[2])
		}
	}
	url := *req.Raw().URL
	url.RawQuery = ""
	return nil, &responseError{refusal, fmt.Sprintf("%s %s: status %d %s%s (request %s)", req.Raw().Method, &url, resp.StatusCode,
		cmp.Or(code, http.StatusText(resp.StatusCode)), message, resp.Header.Get("x-ms-request-id"))}
}
