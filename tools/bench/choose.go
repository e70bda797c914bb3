package main

import "regexp"

// choice has the patterns of wanted rows and groups; nil is for none.
type choice struct{ rows, groups *regexp.Regexp }

// choose wants everything where neither pattern says anything.
func choose(rows, groups string) (c choice, err error) {
	if rows != "" || groups == "" {
		if c.rows, err = regexp.Compile(rows); err != nil {
			return c, err
		}
	}
	if groups != "" || rows == "" {
		c.groups, err = regexp.Compile(groups)
	}
	return c, err
}

// of are the groups that are wanted.
func (c choice) of(groups []group) []group {
	var chosen []group
	for _, p := range groups {
		if c.groups != nil && c.groups.MatchString(p.name) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}
