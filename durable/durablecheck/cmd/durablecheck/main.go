// Command durablecheck reports what makes an orchestrator behave differently
// when it is replayed. Run it under go vet, or on its own:
//
//	go vet -vettool=$(which durablecheck) ./...
//	durablecheck ./...
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
)

func main() { singlechecker.Main(durablecheck.Analyzer) }
