package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// How long a code is good for, and how often one may guess.
const (
	challengeTime     = 90 * time.Second
	challengeAttempts = 3
)

// ChallengeResponse is the event with which the human answers: the code, as a
// JSON number.
const ChallengeResponse = durable.Event[int]("ChallengeResponse")

// SmsPhoneVerification is human interaction with a timeout: it sends a code to a
// phone number, waits for the human to send it back as a [ChallengeResponse],
// and returns whether that happened in time and within three attempts.
func SmsPhoneVerification(ctx *durable.Context, phone string) (bool, error) {
	if phone == "" {
		return false, errors.New("the input must be a phone number, as a JSON string")
	}
	code, err := durable.CallActivity(ctx, SendSmsChallenge, phone).Await()
	if err != nil {
		return false, err
	}
	deadline := ctx.Timer(challengeTime)
	for left := challengeAttempts; left > 0; left-- {
		ctx.SetCustomStatus(fmt.Sprintf("waiting for the code, attempts left: %d", left))
		answer := ChallengeResponse.Wait(ctx)
		if durable.AwaitAny(ctx, answer, deadline) == deadline {
			return false, nil
		}
		// An answer that is not a number is a wrong one like any other.
		if got, err := answer.Await(); err == nil && got == code {
			return true, nil
		}
	}
	return false, nil
}

// SendSmsChallenge thinks of a code of four digits, sends it and returns it. The
// random number must be drawn in an activity, whose result is kept: drawn in the
// orchestrator, it would be another one at every replay.
func SendSmsChallenge(ctx context.Context, phone string) (int, error) {
	n, err := rand.Int(rand.Reader, big.NewInt(9000))
	if err != nil {
		return 0, err
	}
	code := 1000 + int(n.Int64())
	// A real app calls its SMS service here.
	slog.InfoContext(ctx, fmt.Sprintf("SMS to %s: your verification code is %d", phone, code))
	return code, nil
}
