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

// The lifetime of a code, and the number of attempts.
const (
	challengeTime     = 90 * time.Second
	challengeAttempts = 3
)

// ChallengeResponse is the event that contains the user's answer: the code as a
// JSON number.
const ChallengeResponse = durable.Event[int]("ChallengeResponse")

// SmsPhoneVerification shows human interaction with a timeout. It sends a code
// to a phone number and waits for a [ChallengeResponse] with the same code. It
// returns whether the user sent the code in time and within three attempts.
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
		// An answer that is not a number counts as a wrong code.
		if got, err := answer.Await(); err == nil && got == code {
			return true, nil
		}
	}
	return false, nil
}

// SendSmsChallenge generates a code of four digits, sends it and returns it. The random
// number is generated in an activity, because the result of an activity is recorded. In the
// orchestrator, each replay would generate a different code.
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
