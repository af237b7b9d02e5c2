package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

func refusalOf(status int, code string) error {
	return fmt.Errorf("it failed: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: code})
}

func TestAccessError_NamesTheSettingToChange(t *testing.T) {
	for code, want := range map[string]string{
		"KeyBasedAuthenticationNotPermitted": "allowSharedKeyAccess",
		"AuthorizationFailure":               "firewall",
		"AuthorizationPermissionMismatch":    "Storage Queue Data Contributor",
		"AuthenticationFailed":               "clock",
	} {
		attempts := 0
		err := Retry(t.Context(), "ask", func(context.Context) error { attempts++; return refusalOf(http.StatusForbidden, code) })
		refusal, ok := errors.AsType[*AccessError](err)
		if !ok || refusal.Code != code || !strings.Contains(err.Error(), code) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an AccessError that names %q", code, err, want)
		}
		if attempts != 1 || StatusOf(err) != http.StatusForbidden {
			t.Errorf("%s: %d attempts, status %d; want 1 and 403", code, attempts, StatusOf(err))
		}
		for _, since := range []time.Duration{0, RoleAssignmentTimeout - 1, RoleAssignmentTimeout} {
			retry, giveUp := DecideAccessRetry(err, since)
			want := code == "AuthorizationPermissionMismatch" && since < RoleAssignmentTimeout
			if retry != want || giveUp == want {
				t.Errorf("%s after %v: retry %v, give up %v; want to retry: %v", code, since, retry, giveUp, want)
			}
		}
	}
	if retry, giveUp := DecideAccessRetry(refusalOf(http.StatusServiceUnavailable, "ServerBusy"), 0); retry || giveUp {
		t.Errorf("a busy service: retry %v, give up %v; want neither", retry, giveUp)
	}
}

func TestIsConflict_IsTrueOnlyForOvertakenWrites(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   bool
	}{
		{http.StatusConflict, "EntityAlreadyExists", true},
		{http.StatusConflict, "BlobAlreadyExists", true},
		{http.StatusConflict, "LeaseAlreadyPresent", true},
		{http.StatusConflict, "LeaseIdMismatchWithLeaseOperation", true},
		{http.StatusConflict, "", true},
		{http.StatusPreconditionFailed, "UpdateConditionNotSatisfied", true},
		{http.StatusPreconditionFailed, "LeaseIdMismatchWithBlobOperation", true},
		{http.StatusNotFound, "ResourceNotFound", true},
		{http.StatusConflict, "SnapshotsPresent", false},
		{http.StatusConflict, "BlobImmutableDueToPolicy", false},
		{http.StatusConflict, "BlockCountExceedsLimit", false},
		{http.StatusConflict, "ContainerBeingDeleted", false},
		{http.StatusConflict, "InvalidBlobType", false},
	} {
		err := refusalOf(tt.status, tt.code)
		if got := IsConflict(err); got != tt.want {
			t.Errorf("%d %s: %v, want %v", tt.status, tt.code, got, tt.want)
		}
		if tt.status == http.StatusConflict && !tt.want && ignoreExisting(err) == nil {
			t.Errorf("isExisting(%q) = true, want false", tt.code)
		}
	}
}

// noToken is a credential that fails.
type noToken struct{}

func (noToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, errors.New("the identity endpoint does not answer")
}

// neverAsked is a transport that must not be used.
type neverAsked struct{ t *testing.T }

func (n neverAsked) Do(r *http.Request) (*http.Response, error) {
	n.t.Errorf("%s %s was sent", r.Method, r.URL)
	return nil, errors.New("it was sent")
}

func TestCredential_FailureSendsNothingAndIsTransient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := Account{Credential: noToken{}, Queue: "https://q.example", Table: "https://t.example", Blob: "https://b.example"}
		s, err := NewServices(account, account, neverAsked{t}, nil, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		for what, ask := range map[string]func() error{
			"queue":     func() error { return NewQueue(s.Queues, "queue").Create(t.Context()) },
			"table":     func() error { return NewTable(s.Tables, s.TableEndpoint, "table").Create(t.Context()) },
			"container": func() error { return NewContainer(s.Blobs, s.BlobEndpoint, "container").Create(t.Context()) },
		} {
			if err := ask(); err == nil || !WasNotApplied(err) || !IsTransient(err) {
				t.Errorf("%s: %v, WasNotApplied %v, IsTransient %v; want an error with both true", what, err, WasNotApplied(err), IsTransient(err))
			}
		}
	})
}

// simulated returns clients for a simulated account.
func simulated(t *testing.T, account *azsim.Account) *Services {
	t.Helper()
	c, err := ParseAccount(account.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServices(c, c, account.Worker("w"), nil, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCreate_WaitsForTheDeletionOfAnEarlierResource(t *testing.T) {
	for _, delay := range []time.Duration{40 * time.Second, 110 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			account := azsim.New(azsim.Config{DeletionDelay: delay})
			s := simulated(t, account)
			q, tab, c := NewQueue(s.Queues, "queue"), NewTable(s.Tables, s.TableEndpoint, "table"), NewContainer(s.Blobs, s.BlobEndpoint, "container")
			for name, r := range map[string]struct {
				create func(context.Context) error
				remove func() error
			}{
				"queue":     {q.Create, func() error { _, err := q.Client.Delete(t.Context(), nil); return err }},
				"table":     {tab.Create, func() error { _, err := tab.Client.Delete(t.Context(), nil); return err }},
				"container": {c.Create, func() error { return c.Delete(t.Context()) }},
			} {
				if err := errors.Join(r.create(t.Context()), r.remove()); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				began := time.Now()
				if err := r.create(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(began); took < delay || took > delay+10*time.Second {
					t.Errorf("%s was created after %v, want %v", name, took, delay)
				}
			}
			account.Wait()
		})
	}
}

func TestRemove_DeletesSnapshotsWithTheBlob(t *testing.T) {
	account := azsim.New(azsim.Config{})
	c := NewContainer(simulated(t, account).Blobs, "https://sim.blob.core.windows.net", "container")
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(string) error{
		"text": func(name string) error { return c.Remove(t.Context(), name) },
		"log":  func(name string) error { return c.AppendBlob(name).Remove(t.Context(), "", "") },
	} {
		if err := c.CreateBlob(t.Context(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if !account.Snapshot("container", name) {
			t.Fatal("cannot create a snapshot: the blob does not exist")
		}
		if err := remove(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := account.Blobs(); len(left) > 0 {
		t.Errorf("%+v remain, want none", left)
	}
}

func TestListInfo_SkipsDirectories(t *testing.T) {
	account := azsim.New(azsim.Config{Directories: true})
	c := NewContainer(simulated(t, account).Blobs, "https://sim.blob.core.windows.net", "container")
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/b/c", "a/d", "e"} {
		if err := c.CreateBlob(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	blobs, _, err := c.ListInfo(t.Context(), "")
	var names []string
	for _, b := range blobs {
		names = append(names, b.Name)
	}
	if got := strings.Join(names, " "); err != nil || got != "a/b/c a/d e" {
		t.Errorf("the list has %q, %v; want only the blobs", got, err)
	}
}
