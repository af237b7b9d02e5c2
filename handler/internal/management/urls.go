package management

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// retryCheckStatus is the Retry-After of a start, in seconds.
const retryCheckStatus = "10"

// An InstanceURLs holds the URLs that manage an instance. The caller replaces the placeholders
// {eventName} and {text}. It has the members of the .NET extension's answer to a start and
// rewindPostUri (HttpManagementPayload.cs; HttpApiHandler.cs, CreateCheckStatusResponseMessage).
type InstanceURLs struct {
	ID                    durable.InstanceID `json:"id"`
	StatusQueryGetURI     string             `json:"statusQueryGetUri"`
	SendEventPostURI      string             `json:"sendEventPostUri"`
	TerminatePostURI      string             `json:"terminatePostUri"`
	RewindPostURI         string             `json:"rewindPostUri"`
	PurgeHistoryDeleteURI string             `json:"purgeHistoryDeleteUri"`
	RestartPostURI        string             `json:"restartPostUri"`
	SuspendPostURI        string             `json:"suspendPostUri"`
	ResumePostURI         string             `json:"resumePostUri"`
	// Warning is set if this app has no function for the started instance. The .NET extension has no
	// such member.
	Warning string `json:"warning,omitempty"`
}

// CheckStatus answers a request that has started an instance with status 202 and its URLs.
func CheckStatus(c echo.Context, id durable.InstanceID) error {
	payload, err := URLs(c, id)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, payload.StatusQueryGetURI)
	c.Response().Header().Set(echo.HeaderRetryAfter, retryCheckStatus)
	return web.WriteJSON(c, http.StatusAccepted, payload)
}

// URLs returns the management URLs of an instance, for an app's own route.
func URLs(c echo.Context, id durable.InstanceID) (InstanceURLs, error) {
	l := LinksOf(c)
	if l == nil {
		return InstanceURLs{}, errNoServer
	}
	return l.CheckStatus(id), nil
}

// WaitOrCheckStatus waits for an instance to end and answers, for an app's own route.
func WaitOrCheckStatus(c echo.Context, id durable.InstanceID, timeout, interval time.Duration) error {
	l := LinksOf(c)
	if l == nil {
		return errNoServer
	}
	return instanceAPI{l.management}.waitOrCheckStatus(c, web.Query{}, id, timeout, interval)
}

var errNoServer = errors.New("management URLs: the request did not come through a handler.Server")

// links creates the URLs in the answer to one request.
type links struct {
	origin string                          // scheme and host
	base   string                          // path of the management API
	query  string                          // the parameters taskHub and connection
	code   func(durable.InstanceID) string // returns the parameters code and sig

	management *API
	warning    string // about the instance that the request started
}

const linksKey = "durablefunctions.links"

// LinksOf returns the links of a request, or nil if the request did not come through a server.
func LinksOf(c echo.Context) *links {
	l, _ := c.Get(linksKey).(*links)
	return l
}

func (l *links) CheckStatus(id durable.InstanceID) InstanceURLs {
	// Escape all special characters, and a space as %20. Some decoders, such as .NET's, read "+" as a
	// space.
	instance := l.origin + l.base + "/instances/" + strings.ReplaceAll(url.QueryEscape(string(id)), "+", "%20")
	query := l.query
	if code := l.code(id); code != "" {
		query += "&" + code
	}
	withReason := func(operation string) string { return instance + "/" + operation + "?reason={text}&" + query }
	return InstanceURLs{
		ID:                    id,
		StatusQueryGetURI:     instance + "?" + query,
		SendEventPostURI:      instance + "/raiseEvent/{eventName}?" + query,
		TerminatePostURI:      withReason("terminate"),
		RewindPostURI:         withReason("rewind"),
		PurgeHistoryDeleteURI: instance + "?" + query,
		RestartPostURI:        instance + "/restart?" + query,
		SuspendPostURI:        withReason("suspend"),
		ResumePostURI:         withReason("resume"),
		Warning:               l.warning,
	}
}

// requestURL returns the public URL of a request.
func (l *links) requestURL(r *http.Request) string {
	path := r.RequestURI
	if !strings.HasPrefix(path, "/") { // the absolute form of a proxy
		path = r.URL.RequestURI()
	}
	return l.origin + path
}
