package provider_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestPlace_StringGivesThePosition(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]provider.QueuePosition{
		"partition 3 has about 1204 messages ahead of it; owner: w1":                                         {Partition: 3, Owner: "w1", MessagesAhead: 1204},
		"partition 0 has 7 messages ahead of it; owner: none":                                                {MessagesAhead: 7, IsExact: true},
		"the hub has 0 messages ahead of it; owner: this process":                                            {Partition: -1, Owner: "this process", IsExact: true},
		"its start message is missing; the owner of partition 3 sends it again within 90 seconds; owner: w1": {Partition: 3, Owner: "w1", StartMissing: true},
		"partition 1 has about 0 messages ahead of it; owner: none":                                          {Partition: 1},
	} {
		if got := p.String(); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}
