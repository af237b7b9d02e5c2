package settings

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeSpan is .NET's TimeSpan in the forms that host.json uses: hh:mm:ss, with
// days and a point before it, or a point and up to seven digits after it, and
// hh:mm. TimeSpan.Parse knows more, among them a plain number, which it takes
// for days.
var timeSpan = regexp.MustCompile(`^(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?$`)

var errTimeSpan = errors.New("not a time span of the form hh:mm:ss or d.hh:mm:ss")

// ParseTimeSpan returns the duration that a .NET TimeSpan stands for. Negative
// ones are not accepted, since no setting allows them.
func ParseTimeSpan(s string) (time.Duration, error) {
	m := timeSpan.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, errTimeSpan
	}
	days, hours, minutes, seconds := number(m[1]), number(m[2]), number(m[3]), number(m[4])
	if hours > 23 || minutes > 59 || seconds > 59 {
		return 0, errTimeSpan
	}
	if days > math.MaxInt64/int64(24*time.Hour)-1 {
		return 0, errTimeSpan
	}
	ticks := number((m[5] + "0000000")[:7]) // units of 100 ns
	return time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute +
		time.Duration(seconds)*time.Second + time.Duration(ticks)*100, nil
}

// number returns the value of a few decimal digits, 0 for none.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// FormatTimeSpan returns d, which is not negative, in the form that
// parseTimeSpan reads.
func FormatTimeSpan(d time.Duration) string {
	days, rest := d/(24*time.Hour), d%(24*time.Hour)
	s := fmt.Sprintf("%02d:%02d:%02d", rest/time.Hour, rest%time.Hour/time.Minute, rest%time.Minute/time.Second)
	if days > 0 {
		s = fmt.Sprintf("%d.%s", days, s)
	}
	if ticks := rest % time.Second / 100; ticks > 0 {
		s += fmt.Sprintf(".%07d", ticks)
	}
	return s
}
