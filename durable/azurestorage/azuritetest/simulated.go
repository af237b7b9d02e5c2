package azuritetest

import "github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"

// An Account is a storage account in the memory of this process. It uses the time of the synctest
// bubble in which it is created. Its workers are transports.
type Account = azsim.Account

// NewSimulatedAccount returns an empty account that responds without delay.
func NewSimulatedAccount() *Account { return azsim.New(azsim.Config{Seed: 1}) }
