package handler

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/labstack/echo/v4"
)

// Defaults of [WaitOrCheckStatus].
const (
	DefaultWaitTimeout  = 10 * time.Second
	DefaultWaitInterval = time.Second
)

// WaitOrCheckStatus answers a request that has started an instance. It waits up to timeout for the
// instance to end. If the instance completes, the answer is its output with status 200; if it ends
// otherwise, the answer is its status. A failed status check does not end the wait. When the timeout
// expires, it answers like [CheckStatus], even if the instance does not exist. It polls once per interval.
// A zero timeout is 10 s, a zero interval is 1 s.
func WaitOrCheckStatus(c echo.Context, id durable.InstanceID, timeout, interval time.Duration) error {
	if timeout == 0 {
		timeout = DefaultWaitTimeout
	}
	if interval == 0 {
		interval = DefaultWaitInterval
	}
	return management.WaitOrCheckStatus(c, id, timeout, interval)
}

// A ManagementPayload holds the URLs that manage an instance: ID, StatusQueryGetURI, SendEventPostURI,
// TerminatePostURI, RewindPostURI, PurgeHistoryDeleteURI, RestartPostURI, SuspendPostURI, ResumePostURI, and
// a Warning. The caller replaces the placeholders {eventName} and {text}. The .NET extension has the same
// members (HttpManagementPayload.cs; HttpApiHandler.cs, CreateCheckStatusResponseMessage).
type ManagementPayload = management.InstanceURLs

// Management returns the URLs that manage an instance, for a route that composes its own answer. They
// start with the origin of the request and contain a code that grants access. It returns an error if
// the request did not come through a [Server].
func Management(c echo.Context, id durable.InstanceID) (ManagementPayload, error) {
	return management.URLs(c, id)
}

// CheckStatus answers a request that has started an instance: status 202, the status URL in the
// Location header, and the [ManagementPayload] as the body. It returns an error if the request did not
// come through a [Server].
func CheckStatus(c echo.Context, id durable.InstanceID) error {
	return management.CheckStatus(c, id)
}
