package handler

import "strings"

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

// plan returns what the platform tells of the plan
// (WebJobs.Extensions.DurableTask/DefaultPlatformInformation.cs,
// IsInConsumptionPlan). Unlike the extension it takes CONTAINER_NAME for a sign
// of Azure only if there is a site: other places set a variable of that name,
// too.
func (e processEnvironment) plan() plan {
	switch {
	case strings.EqualFold(e.SKU, "FlexConsumption"):
		return planFlex
	case strings.EqualFold(e.SKU, "Dynamic"), e.SiteName != "" && e.ContainerName != "" && e.InstanceID == "":
		return planConsumption
	}
	return planOther
}
