package azuritetest

import "github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"

// An Account is a storage account in the memory of this process, whose time is that of
// the bubble it is made in. A transport to it is one of its workers.
type Account = azsim.Account

// Simulated returns an account that is empty, and answers at once.
func Simulated() *Account { return azsim.New(azsim.Config{Seed: 1}) }
