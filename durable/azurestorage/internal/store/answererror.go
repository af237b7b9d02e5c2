package store

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// An answerError is an answer of a storage service with the status 400 or higher. Its text is
// one line. The text of the SDK also has the headers and the body.
type answerError struct {
	refusal error // an *azcore.ResponseError
	text    string
}

// Error names the request, the status, the service's code and message, and the ID of the
// request.
func (e *answerError) Error() string { return e.text }

// Unwrap returns the *azcore.ResponseError.
func (e *answerError) Unwrap() error { return e.refusal }

// messages match the message in the body of an error, up to the end of the line.
var messages = regexp.MustCompile(`<Message>([^<\r\n]*)|"message"\s*:\s*\{[^}]*?"value"\s*:\s*"([^"\\]*)`)

// answerPolicy returns error answers as an *[answerError].
type answerPolicy struct{}

// Do implements policy.Policy.
func (answerPolicy) Do(req *policy.Request) (*http.Response, error) {
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
	return nil, &answerError{refusal, fmt.Sprintf("%s %s: status %d %s%s (request %s)", req.Raw().Method, &url, resp.StatusCode,
		cmp.Or(code, http.StatusText(resp.StatusCode)), message, resp.Header.Get("x-ms-request-id"))}
}
