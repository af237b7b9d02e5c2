package logs

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var logger = log.New(nil, "", 0)

func wrong(ctx *durable.Context, in string) (string, error) {
	fmt.Println(in)            // want `^fmt.Println prints again on each replay; prefer ctx.Logger\(\), which is silent while replaying$`
	fmt.Printf("%s", in)       // want `fmt.Printf prints`
	log.Printf("%s", in)       // want `log.Printf prints`
	logger.Print(in)           // want `log.Logger.Print prints`
	slog.Info(in)              // want `slog.Info prints`
	slog.With("a", 1).Warn(in) // want `slog.With prints`
	slog.Default().Info(in)    // want `slog.Default prints`
	println(in)                // want `the builtin println prints`
	log.Fatal(in)              // want `log.Fatal ends the worker`
	return in, nil
}

// context.TODO stands for any context here, as it is found in code that is checked.
func right(ctx *durable.Context, in string) (string, error) {
	ctx.Logger().Info("got", "in", in)
	ctx.Logger().LogAttrs(context.Background(), slog.LevelInfo, "got", slog.String("in", in))
	l := ctx.Logger().With("in", in)
	l.InfoContext(context.TODO(), "again")
	var b strings.Builder
	fmt.Fprintf(&b, "%s", in)
	return fmt.Sprint(b.String()), fmt.Errorf("of %s", in)
}
