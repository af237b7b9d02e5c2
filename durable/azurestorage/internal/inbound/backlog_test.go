package inbound

import (
	"testing"
)

func TestBacklog_IsEmptyOnlyAfterAPollThatReceivesFewerMessagesThanRequested(t *testing.T) {
	t.Parallel()
	b := backlog{hints: 1}
	if b.isEmpty() {
		t.Error("empty before the first poll")
	}
	before := b.snapshot()
	b.hint() // a message was sent during the poll
	if b.polled(before, 0, 32); b.isEmpty() {
		t.Error("empty although a message was sent during the poll")
	}
	if b.polled(b.snapshot(), 32, 32); b.isEmpty() {
		t.Error("empty although the poll received as many messages as it asked for")
	}
	if b.polled(b.snapshot(), 31, 32); !b.isEmpty() {
		t.Error("not empty after a poll that received fewer messages than it asked for")
	}
}
