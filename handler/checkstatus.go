package handler

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/labstack/echo/v4"
)

// The defaults of [WaitOrCheckStatus].
const (
	DefaultWaitTimeout  = 10 * time.Second
	DefaultWaitInterval = time.Second
)

// WaitOrCheckStatus answers a request that started an instance with status 200 and its
// output if it completes within timeout (default 10 s), with its status if it ends in
// another way, else as [CheckStatus]. It checks every interval (default 1 s).
func WaitOrCheckStatus(c echo.Context, id durable.InstanceID, timeout, interval time.Duration) error {
	if timeout == 0 {
		timeout = DefaultWaitTimeout
	}
	if interval == 0 {
		interval = DefaultWaitInterval
	}
	return management.WaitOrCheckStatus(c, id, timeout, interval)
}

// A ManagementPayload has the URLs to manage an instance, with {eventName} and {text} for
// the caller to replace. Its members are those of the .NET extension
// (HttpManagementPayload.cs; HttpApiHandler.cs, CreateCheckStatusResponseMessage).
type ManagementPayload struct {
	ID                    durable.InstanceID `json:"id"`
	StatusQueryGetURI     string             `json:"statusQueryGetUri"`
	SendEventPostURI      string             `json:"sendEventPostUri"`
	TerminatePostURI      string             `json:"terminatePostUri"`
	RewindPostURI         string             `json:"rewindPostUri"`
	PurgeHistoryDeleteURI string             `json:"purgeHistoryDeleteUri"`
	RestartPostURI        string             `json:"restartPostUri"`
	SuspendPostURI        string             `json:"suspendPostUri"`
	ResumePostURI         string             `json:"resumePostUri"`
	// Warning says that the app does not know the function that was started. The
	// extension has no such member.
	Warning string `json:"warning,omitempty"`
}

// Management returns the URLs to manage an instance, for a route with an answer of its own.
// They have the origin of the request and a code that gives access. It returns an error if
// the request did not come through a [Server].
func Management(c echo.Context, id durable.InstanceID) (ManagementPayload, error) {
	urls, err := management.URLs(c, id)
	return ManagementPayload(urls), err
}

// CheckStatus answers a request that started an instance with status 202, the
// URL of its status as Location, and its [ManagementPayload]. It returns an error
// if the request did not come through a [Server].
func CheckStatus(c echo.Context, id durable.InstanceID) error {
	return management.CheckStatus(c, id)
}
