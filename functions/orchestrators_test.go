package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/google/go-cmp/cmp"
)

// These tests run the orchestrators in virtual time, with stubs for activities that have
// side effects.

func TestHelloSequence_GreetsCitiesInSequence(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)

	got, err := durabletest.Run(hub, HelloSequence, nil)

	if diff := cmp.Diff(got, []string{"Hello Tokyo!", "Hello Seattle!", "Hello London!"}); diff != "" || err != nil {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
	if diff := cmp.Diff(durabletest.Calls(hub, SayHello), []string{"Tokyo", "Seattle", "London"}); diff != "" {
		t.Errorf("calls of SayHello (-got +want):\n%s", diff)
	}
}

func TestBackupSiteContent_CopiesAllFilesConcurrently(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, GetFileList, func(context.Context, string) ([]string, error) { return []string{"a", "b/c", "d"}, nil })
	durabletest.Stub(hub, CopyFile, func(ctx context.Context, f SiteFile) (int64, error) {
		durabletest.Spend(ctx, time.Duration(len(f.File))*time.Minute)
		return int64(len(f.File)), nil
	})

	total, err := durabletest.Run(hub, BackupSiteContent, "/site")

	if total != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", total, err)
	}
	if diff := cmp.Diff(durabletest.Calls(hub, CopyFile), []SiteFile{{"/site", "a"}, {"/site", "b/c"}, {"/site", "d"}}); diff != "" {
		t.Errorf("calls of CopyFile (-got +want):\n%s", diff)
	}
	if got, want := hub.Elapsed(), 3*time.Minute; got != want {
		t.Errorf("took %v, want %v, as the slowest", got, want)
	}
}

func TestBackupSiteContent_FailsIfAFileCannotBeCopied(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, GetFileList, func(context.Context, string) ([]string, error) { return []string{"good", "bad"}, nil })
	durabletest.Stub(hub, CopyFile, func(_ context.Context, f SiteFile) (int64, error) {
		if f.File == "bad" {
			return 0, errors.New("disk full")
		}
		return 1, nil
	})

	_, err := durabletest.Run(hub, BackupSiteContent, "/site")

	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want a disk full error", err)
	}
}

func TestMonitor_ChecksUntilTheFileExists(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, IsThere, func(context.Context, string) (bool, error) { return hub.Elapsed() >= 20*time.Minute, nil })
	i := durabletest.Start(hub, Monitor, Watch{File: "/ready", EverySeconds: 300})

	hub.Advance(12 * time.Minute)
	if got, want := i.CustomStatus(), `"file not found after 3 checks"`; got != want {
		t.Errorf("custom status %s after 12 minutes, want %s", got, want)
	}
	if there, err := i.Wait(); !there || err != nil {
		t.Errorf("got %v, %v, want true", there, err)
	}
	if got, want := hub.Elapsed(), 20*time.Minute; got != want {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestMonitor_GivesUpInTime(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, IsThere, func(context.Context, string) (bool, error) { return false, nil })

	there, err := durabletest.Run(hub, Monitor, Watch{File: "/ready"})

	if there || err != nil {
		t.Errorf("got %v, %v, want false", there, err)
	}
	if got, want := hub.Elapsed(), 6*time.Hour; got != want {
		t.Errorf("took %v, want %v", got, want)
	}
	if got, want := len(durabletest.Calls(hub, IsThere)), 721; got != want { // every half minute, and once at the start
		t.Errorf("%d checks, want %d", got, want)
	}
}

func TestMonitor_FailsWithoutAFile(t *testing.T) {
	t.Parallel()
	if _, err := durabletest.Run(durabletest.New(t, functions...), Monitor, Watch{}); err == nil || !strings.Contains(err.Error(), "the input must be like") {
		t.Errorf("got %v, want an error that describes the input", err)
	}
}

func TestSmsPhoneVerification_EndsInOneOfFourWays(t *testing.T) {
	t.Parallel()
	const code = 4711
	for _, c := range []struct {
		name    string
		answers []int // ten seconds apart
		want    bool
		status  string
		took    time.Duration
	}{
		{"right at once", []int{code}, true, `"waiting for the code, attempts left: 3"`, 10 * time.Second},
		{"right at last", []int{1, 2, code}, true, `"waiting for the code, attempts left: 1"`, 30 * time.Second},
		{"wrong thrice", []int{1, 2, 3, code}, false, `"waiting for the code, attempts left: 1"`, 30 * time.Second},
		{"too late", nil, false, `"waiting for the code, attempts left: 3"`, 90 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hub := durabletest.New(t, functions...)
			durabletest.Stub(hub, SendSmsChallenge, func(context.Context, string) (int, error) { return code, nil })
			i := durabletest.Start(hub, SmsPhoneVerification, "+12065550100")
			for n, answer := range c.answers {
				hub.After(time.Duration(n+1)*10*time.Second, func() { durabletest.Raise(i, ChallengeResponse, answer) })
			}

			got, err := i.Wait()

			if got != c.want || err != nil {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
			if i.CustomStatus() != c.status || hub.Elapsed() != c.took {
				t.Errorf("custom status %s after %v, want %s after %v", i.CustomStatus(), hub.Elapsed(), c.status, c.took)
			}
		})
	}
}

// An answer that is not a number counts as a wrong code.
func TestSmsPhoneVerification_CountsWordsAsWrongCodes(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, SendSmsChallenge, func(context.Context, string) (int, error) { return 4711, nil })
	i := durabletest.Start(hub, SmsPhoneVerification, "+12065550100")

	durabletest.Raise(i, durable.Event[string](ChallengeResponse), "I do not have it")
	if got, want := i.CustomStatus(), `"waiting for the code, attempts left: 2"`; got != want {
		t.Errorf("custom status %s, want %s", got, want)
	}
	durabletest.Raise(i, ChallengeResponse, 4711)
	if verified, err := i.Wait(); !verified || err != nil {
		t.Errorf("got %v, %v, want true", verified, err)
	}
}
