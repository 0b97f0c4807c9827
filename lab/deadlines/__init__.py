"""What deadlines are scheduled by elsewhere: policies, and a reducer that they are tried on."""
