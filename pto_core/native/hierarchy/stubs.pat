# What stubgen cannot see: the methods that take their arguments as a vectorcall gives them.
