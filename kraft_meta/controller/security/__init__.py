"""What the controller decides about access: ACLs, SCRAM credentials, delegation tokens."""
