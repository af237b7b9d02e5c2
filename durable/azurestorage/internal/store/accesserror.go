package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// RoleAssignmentTimeout is the longest time that a role assignment takes to reach the storage
// services (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting).
const RoleAssignmentTimeout = 10 * time.Minute

// codeRoleMissing is the error code for an identity without a role. The service also returns it until
// a new role assignment has taken effect.
const codeRoleMissing = "AuthorizationPermissionMismatch"

// RoleMissingNotice is the log message of a process that retries because a new role assignment may
// not have taken effect yet.
const RoleMissingNotice = "the storage account refuses access because the app's identity has no role; " +
	"a new role assignment takes up to 10 minutes to take effect, so the app retries"

// accessAdvice contains the setting to change, by the error code of a response with status 403.
var accessAdvice = map[string]string{
	codeRoleMissing: "assign the roles Storage Queue Data Contributor, Storage Table Data Contributor and Storage Blob Data Owner to the app's identity",
	"KeyBasedAuthenticationNotPermitted": "the account does not allow shared keys: connect with an identity (__accountName), " +
		"or set allowSharedKeyAccess of the account to true",
	"AuthorizationFailure": "the account's firewall refuses this network: add the network to the account's networking settings, " +
		"or use a private endpoint",
	"AuthenticationFailed":              "check the account key or the SAS in the connection, and this machine's clock",
	"AuthorizationResourceTypeMismatch": "the SAS needs the resource types Service, Container and Object (srt=sco)",
	"AuthorizationServiceMismatch":      "the SAS needs the services Blob, Queue and Table (ss=bqt)",
	"AuthorizationProtocolMismatch":     "the SAS does not allow this protocol: connect by HTTPS",
	"AuthorizationSourceIPMismatch":     "the SAS does not allow this machine's address (sip)",
	"AccountIsDisabled":                 "the storage account is disabled",
	"InsufficientAccountPermissions":    "the SAS needs the permissions rwdlacup",
}

// AccessError is a response with status 403: the storage account refuses access.
type AccessError struct {
	Code   string // such as AuthorizationFailure
	Advice string // the setting to change; empty if unknown
	Cause  error
}

// Error names the code, the setting to change and the cause.
func (e *AccessError) Error() string {
	if e.Advice == "" {
		return fmt.Sprintf("the storage account refuses access (%s): %v", e.Code, e.Cause)
	}
	return fmt.Sprintf("the storage account refuses access (%s): %s: %v", e.Code, e.Advice, e.Cause)
}

// Unwrap returns the cause.
func (e *AccessError) Unwrap() error { return e.Cause }

// IsRoleMissing reports whether the identity has no role. A new role assignment may end this error.
func (e *AccessError) IsRoleMissing() bool { return e.Code == codeRoleMissing }

// explained converts an error with status 403 into an *[AccessError]. It returns other errors
// unchanged.
func explained(err error) error {
	if StatusOf(err) != http.StatusForbidden || errors.As(err, new(*AccessError)) {
		return err
	}
	return &AccessError{Code: CodeOf(err), Advice: accessAdvice[CodeOf(err)], Cause: err}
}

// DecideAccessRetry decides how a starting process handles an error. retry is true if a new role
// assignment may not have taken effect yet, giveUp if the account refuses access for another reason.
// Both are false for any other error. since is the time since the first attempt.
func DecideAccessRetry(err error, since time.Duration) (retry, giveUp bool) {
	refusal, ok := errors.AsType[*AccessError](err)
	if !ok {
		return false, false
	}
	retry = refusal.IsRoleMissing() && since < RoleAssignmentTimeout
	return retry, !retry
}

// errNoToken marks errors of credentials. The request that needed the token was not sent.
var errNoToken = errors.New("no access token for the storage account")

// markedCredential marks the errors of a credential with errNoToken.
type markedCredential struct{ azcore.TokenCredential }

// GetToken implements [azcore.TokenCredential].
func (c markedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoToken, err)
	}
	return token, err
}
