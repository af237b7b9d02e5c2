package handler

// A plan is the hosting plan that an app runs on, as far as defaults differ.
type plan int

const (
	planOther plan = iota // Premium, Dedicated, a container, or no Azure at all
	planConsumption
	planFlex
)

// String returns the name that Azure gives the plan.
func (p plan) String() string {
	switch p {
	case planConsumption:
		return "Consumption"
	case planFlex:
		return "Flex Consumption"
	case planOther:
	}
	return "other"
}
