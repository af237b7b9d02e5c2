package dispatch_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// sleepsIfPatched does the same as sleepsFirst if the change is in effect.
func sleepsIfPatched(x *replay.Execution, in *string) (*string, error) {
	if x.Patched("sleep first") {
		return sleepsFirst(x, in)
	}
	return waitEvent(x, "go").Input, nil
}

// A worker that writes no markers, such as .NET, has run an instance past the question.
func TestPatched_AnInstanceRunPastTheQuestionByDotNetContinues(t *testing.T) {
	for name, before := range map[string]replay.Code{"by new code": sleepsFirst, "by old code": waitForGo} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				stop := b.work(one(before))
				b.start("i", "O", nil)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				b.work(one(sleepsIfPatched))
				b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
				b.wantOutput("i", history.Completed, `"now"`)
			})
		})
	}
}
