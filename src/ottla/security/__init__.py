"""What clients must be allowed to do. So far it is only declared: nothing here is enforced."""
