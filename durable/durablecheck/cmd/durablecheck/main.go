// Command durablecheck reports code that makes an orchestrator behave differently on replay. Run it
// with go vet or as a program of its own:
//
//	go vet -vettool=$(which durablecheck) ./...
//	durablecheck ./...
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
)

func main() { singlechecker.Main(durablecheck.Analyzer) }
