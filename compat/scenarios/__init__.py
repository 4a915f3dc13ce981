"""What virt-handler and a launcher do together, by topic; kit.registry lists the modules."""
